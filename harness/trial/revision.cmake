# Writes OUTPUT (a header with the git revision of SOURCE_DIR) when it would change. Run at build time, so that a result
# never carries the revision of an older configure.
set(revision "unknown")
find_package(Git QUIET)
if(GIT_FOUND)
  execute_process(COMMAND "${GIT_EXECUTABLE}" -C "${SOURCE_DIR}" rev-parse --short=12 HEAD
    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    execute_process(COMMAND "${GIT_EXECUTABLE}" -C "${SOURCE_DIR}" --no-optional-locks status --porcelain --untracked-files=no
      OUTPUT_VARIABLE changes ERROR_QUIET)
    set(revision "${head}")
    if(changes)
      string(APPEND revision "-dirty")
    endif()
  endif()
endif()
set(text "#pragma once\n#define SHARDSCOPE_VERSION \"${VERSION}\"\n#define SHARDSCOPE_GIT_REVISION \"${revision}\"\n")
set(present "")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" present)
endif()
if(NOT present STREQUAL text)
  file(WRITE "${OUTPUT}" "${text}")
endif()
