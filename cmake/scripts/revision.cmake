# Writes OUTPUT, a source that names VERSION and the commit in SOURCE_DIR; leaves it alone where it says so already, so that nothing is
# compiled again. The environment variable BERTH_REVISION goes first: for builds from an export without .git.
set(revision "$ENV{BERTH_REVISION}")
if(NOT revision)
  execute_process(COMMAND git -C "${SOURCE_DIR}" describe --always --dirty --abbrev=12 --exclude "*"
    OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(revision "unknown")
  endif()
endif()
if(NOT revision MATCHES "^[A-Za-z0-9._+/-]+$")
  message(FATAL_ERROR "BERTH_REVISION is no revision: ${revision}")
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT [[
#include "cli/build_info.h"

namespace berth::cli {

const char* const kBuildVersion = "@VERSION@";
const char* const kBuildRevision = "@revision@";

}  // namespace berth::cli
]] @ONLY)
