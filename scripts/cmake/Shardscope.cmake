# What every room's CMakeLists.txt uses. Targets only, no global flags.

find_program(SHARDSCOPE_CCACHE ccache)
if(SHARDSCOPE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers need the time macros left alone.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime "${SHARDSCOPE_CCACHE}")
endif()
find_program(SHARDSCOPE_LLD NAMES ld.lld)

add_library(shardscope_options INTERFACE)
# g++ 12 sees an overlap in `"text" + std::string` where there is none (GCC bug 105651): a warning, not an error.
# Designated initialisers leave the rest to the defaults: that is what they are for.
target_compile_options(shardscope_options INTERFACE -Wall -Wextra -Wno-missing-field-initializers "$<$<BOOL:${SHARDSCOPE_WERROR}>:-Werror;-Wno-error=restrict>")
if(SHARDSCOPE_SANITIZE)
  target_compile_options(shardscope_options INTERFACE -fsanitize=${SHARDSCOPE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(shardscope_options INTERFACE -fsanitize=${SHARDSCOPE_SANITIZE})
  if(SHARDSCOPE_SANITIZE STREQUAL "address")
    target_compile_options(shardscope_options INTERFACE -fsanitize=undefined -fno-sanitize-recover=undefined)
    target_link_options(shardscope_options INTERFACE -fsanitize=undefined)
  endif()
endif()
# With a sanitizer a target's files are compiled together (CMakePresets.json), but for these, whose files use the same names.
set(SHARDSCOPE_NO_UNITY harness_store harness_trial harness_trace harness_recommend harness_advise plan_test analysis_test trial_test)

target_include_directories(shardscope_options INTERFACE "${PROJECT_SOURCE_DIR}")

function(shardscope_unity name)
  if(name IN_LIST SHARDSCOPE_NO_UNITY)
    set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  endif()
endfunction()

# shardscope_library(name SOURCES a.cc ... [DEPS targets whose headers ours include] [PRIVATE_DEPS targets ours alone use])
# A room's headers may include only what DEPS give; a forbidden include fails to compile where the dependency has a path of its own.
function(shardscope_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  shardscope_unity(${name})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(${name} PUBLIC ${A_DEPS} PRIVATE shardscope_options ${A_PRIVATE_DEPS})
  target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}")
endfunction()

function(shardscope_program name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  shardscope_unity(${name})
  target_link_libraries(${name} PRIVATE shardscope_options ${A_DEPS})
  if(SHARDSCOPE_LLD)
    target_link_options(${name} PRIVATE -fuse-ld=lld)
  endif()
endfunction()

# shardscope_test(name SOURCES x_test.cc ... DEPS targets [WHOLE] [LABELS l ...] [TIMEOUT s] [ENVIRONMENT VAR=value ...])
# One GoogleTest program. One ctest entry per case, or, with WHOLE (torch rooms: each process pays 0.3 s), one for all.
function(shardscope_test name)
  cmake_parse_arguments(A "WHOLE" "TIMEOUT" "SOURCES;DEPS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  shardscope_program(${name} SOURCES ${A_SOURCES} DEPS ${A_DEPS} testing_data GTest::gmock GTest::gtest_main)
  set(properties TIMEOUT ${A_TIMEOUT})
  if(A_LABELS)
    list(APPEND properties LABELS "${A_LABELS}")
    if("timing" IN_LIST A_LABELS)
      list(APPEND properties RUN_SERIAL TRUE)   # what measures time runs alone
    endif()
  endif()
  if(A_ENVIRONMENT)
    list(APPEND properties ENVIRONMENT "${A_ENVIRONMENT}")
  endif()
  if(A_WHOLE)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES ${properties})
  else()
    gtest_discover_tests(${name} PROPERTIES ${properties} DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
