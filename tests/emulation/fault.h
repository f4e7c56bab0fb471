// Faults of kernels: what the emulation finds wrong while a kernel runs. As on a GPU the launch is given up, and the
// runtime returns cudaErrorLaunchFailure from then on until cudaDeviceReset. What happened is printed at once and kept
// for TakeFault.
#pragma once

#include <optional>
#include <string>

#include "emulation/call_site.h"

namespace berth::emulation {

// Ends the running kernel with a fault. Outside of a kernel the emulation itself was misused: ends the process.
[[noreturn]] void Fail(CallSite site, const char* format, ...) __attribute__((format(printf, 2, 3)));

// As Fail, for what is found when no kernel runs any more, for example bytes written behind an allocation.
void RecordFault(std::string message);

// Whether the device is at fault: stays until ClearFault.
bool AtFault();
void ClearFault();

// The first fault since the last call, or nothing. A process that exits with a fault nobody took ends with an error, so
// that no test passes over one.
std::optional<std::string> TakeFault();

}  // namespace berth::emulation
