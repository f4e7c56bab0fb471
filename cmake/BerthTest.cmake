# berth_test(NAME <name> SRCS ... [DEPS ...] [TIMEOUT seconds] [LABELS ...])
#
# A GoogleTest program; every TEST becomes a ctest of its own, named <name>.<Suite>.<Test>.
# Labels: 'grpc' marks tests that run real gRPC (left out under TSan: gRPC's locks are not instrumented and report false races).
include(GoogleTest)

function(berth_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  _berth_resolve_deps(deps ${ARG_DEPS})
  add_executable(${ARG_NAME}_test ${ARG_SRCS})
  target_link_libraries(${ARG_NAME}_test PRIVATE ${deps} berth_test_support GTest::gmock GTest::gtest_main berth_flags)
  gtest_discover_tests(${ARG_NAME}_test TEST_PREFIX "${ARG_NAME}." DISCOVERY_MODE PRE_TEST
    PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
