// The files behind server.tls.
#pragma once

#include "config/diagnostics.h"
#include "config/policy_file.h"

namespace berth {

// Reads what server.tls names into config.server.tls.pem and judges it; see ReadPolicyFile.
void ReadTlsFiles(Severity absent_file, PolicyFile* file, Diagnostics* diagnostics);

}  // namespace berth
