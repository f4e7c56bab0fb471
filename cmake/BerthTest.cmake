# berth_test(NAME <name> SRCS ... [DEPS ...] [TIMEOUT seconds] [LABELS ...] [COMPUTES])
#
# A test's own sources are compiled together, a few at a time: most of what one takes are the headers that all have.
# A release compiles them with -O1, which takes a quarter less than -O3 does; what it tests is compiled as ever. COMPUTES
# is for those whose own code is what takes their time, such as reference models and random workloads: -O3.
# A GoogleTest program; every TEST becomes a ctest of its own, named <name>.<Suite>.<Test>.
# Labels: 'grpc' marks tests that run real gRPC (left out under TSan: gRPC's locks are not instrumented and report false races).
include(GoogleTest)

function(berth_test)
  cmake_parse_arguments(ARG "COMPUTES" "NAME;TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  _berth_resolve_deps(deps ${ARG_DEPS})
  add_executable(${ARG_NAME}_test ${ARG_SRCS})
  target_link_libraries(${ARG_NAME}_test PRIVATE ${deps} berth_test_support GTest::gmock GTest::gtest_main berth_flags berth_product_checks_off)
  set_target_properties(${ARG_NAME}_test PROPERTIES UNITY_BUILD ON)
  if(NOT ARG_COMPUTES)
    target_compile_options(${ARG_NAME}_test PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
  endif()
  gtest_discover_tests(${ARG_NAME}_test TEST_PREFIX "${ARG_NAME}." DISCOVERY_MODE PRE_TEST
    PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
