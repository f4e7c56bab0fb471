# Language level, warnings, sanitizers and ccache: what holds for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
endif()

add_library(berth_flags INTERFACE)
# Contraction off: a*b+c is one rounding only where the code says fma, so results do not depend on the optimiser's mood.
target_compile_options(berth_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-qual -Wformat=2 -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports std::string's own copies as overlapping (GCC bug 105329).
  target_compile_options(berth_flags INTERFACE -Wno-restrict)
endif()
if(BERTH_WERROR)
  target_compile_options(berth_flags INTERFACE -Werror)
endif()

if(BERTH_SANITIZE)
  target_compile_options(berth_flags INTERFACE -fsanitize=${BERTH_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(berth_flags INTERFACE -fsanitize=${BERTH_SANITIZE})
  # GCC's flow analysis sees sanitizer instrumentation as possible uninitialised paths.
  target_compile_options(berth_flags INTERFACE -Wno-maybe-uninitialized)
endif()

# Linked behind berth_flags by what is not the product: tests' own code and generated code, where checks for undefined behaviour
# find nothing and take a third of the compilation.
add_library(berth_product_checks_off INTERFACE)
if(BERTH_SANITIZE MATCHES "undefined")
  target_compile_options(berth_product_checks_off INTERFACE -fno-sanitize=undefined)
endif()
