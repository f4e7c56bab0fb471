# berth_library(NAME <module> [HDRS ...] [SRCS ...] [DEPS ...] [PRIVATE_DEPS ...])
#
# One target per module, named berth_<module>; HDRS and SRCS are relative to the calling folder. A module's headers are
# reached as "<module>/file.h" through a folder of its own that holds nothing but a link to the module, so a target can
# include only what it declares in DEPS (part of its headers) or PRIVATE_DEPS (used in its sources alone).
# A dep that names another berth module is written without the prefix.
define_property(GLOBAL PROPERTY BERTH_HEADERS BRIEF_DOCS "header|module pairs checked to compile alone" FULL_DOCS "")

function(_berth_resolve_deps out)
  set(result)
  foreach(dep IN LISTS ARGN)
    if(TARGET berth_${dep} OR dep MATCHES "^[a-z_]+$")
      list(APPEND result berth_${dep})
    else()
      list(APPEND result ${dep})
    endif()
  endforeach()
  set(${out} "${result}" PARENT_SCOPE)
endfunction()

function(berth_library)
  cmake_parse_arguments(ARG "" "NAME" "HDRS;SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  set(target berth_${ARG_NAME})
  _berth_resolve_deps(deps ${ARG_DEPS})
  _berth_resolve_deps(private_deps ${ARG_PRIVATE_DEPS})

  set(root "${CMAKE_BINARY_DIR}/include_roots/${ARG_NAME}")
  file(MAKE_DIRECTORY "${root}")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}" "${root}/${ARG_NAME}" SYMBOLIC)

  if(ARG_SRCS)
    add_library(${target} STATIC ${ARG_SRCS})
    target_include_directories(${target} PUBLIC "${root}")
    target_link_libraries(${target} PUBLIC ${deps} PRIVATE ${private_deps} berth_flags)
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE "${root}")
    target_link_libraries(${target} INTERFACE ${deps})
  endif()
  foreach(header IN LISTS ARG_HDRS)
    set_property(GLOBAL APPEND PROPERTY BERTH_HEADERS "${ARG_NAME}/${header}|${target}")
  endforeach()
endfunction()

# One translation unit per header that includes nothing else: it compiles only if the header stands alone. Sanitizers have no say in
# that: their builds leave it to the others.
function(berth_add_header_checks)
  if(BERTH_SANITIZE)
    return()
  endif()
  get_property(headers GLOBAL PROPERTY BERTH_HEADERS)
  set(checks)
  foreach(pair IN LISTS headers)
    string(REPLACE "|" ";" pair "${pair}")
    list(GET pair 0 header)
    list(GET pair 1 target)
    string(MAKE_C_IDENTIFIER "${header}" id)
    set(source "${CMAKE_BINARY_DIR}/header_checks/${id}.cc")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"${header}\"\n")
    if(NOT TARGET ${target}_headers)
      add_library(${target}_headers OBJECT EXCLUDE_FROM_ALL)
      target_link_libraries(${target}_headers PRIVATE ${target} berth_flags)
      target_compile_options(${target}_headers PRIVATE -O0)
      list(APPEND checks ${target}_headers)
    endif()
    target_sources(${target}_headers PRIVATE "${source}")
  endforeach()
  add_custom_target(header_checks DEPENDS ${checks})
  add_test(NAME build.EveryHeaderCompilesAlone
           COMMAND ${CMAKE_COMMAND} --build ${CMAKE_BINARY_DIR} --target header_checks)
  # It may compile: never beside a test that measures nothing but still wants a core.
  set_tests_properties(build.EveryHeaderCompilesAlone PROPERTIES RUN_SERIAL TRUE TIMEOUT 900)
endfunction()
