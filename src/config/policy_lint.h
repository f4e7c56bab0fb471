// What a resolved policy cannot keep or can never use, in the words of the file.
#pragma once

#include "berth/policy.h"
#include "config/diagnostics.h"
#include "config/resolve_policy.h"
#include "config/server_config.h"

namespace berth {

// Errors: guarantees or slots beyond what there is, a class that can start nothing. Warnings: requests that a class
// allows and can never admit, guarantees and borrowing that nobody can use, tenants whose quota admits nothing.
void LintPolicy(const ServerConfig& config, const Policy& policy, const PolicyContext& context,
                Diagnostics* diagnostics);

}  // namespace berth
