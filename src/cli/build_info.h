// Which build this is.
#pragma once

namespace berth::cli {

extern const char* const kBuildVersion;

// The commit that was built, "-dirty" behind it where files differed from it; "unknown" without git and BERTH_REVISION.
extern const char* const kBuildRevision;

}  // namespace berth::cli
