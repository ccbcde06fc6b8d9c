# cmake -DOUT=python_texts.cc -DFOLDER=... -DNAMES=a.py,b.py -P EmbedScripts.cmake: Python files as one C++ source.
string(REPLACE "," ";" names "${NAMES}")
set(entries "")
foreach(name IN LISTS names)
  # Read as hexadecimal digits: CMake's own lists would take semicolons and brackets for its syntax.
  file(READ "${FOLDER}/${name}" hex HEX)
  string(LENGTH "${hex}" length)
  set(body "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${hex}" ${at} 4000 piece)
    string(REGEX REPLACE "(..)" "\\\\x\\1" piece "${piece}")
    string(APPEND body "      \"${piece}\"\n")
    math(EXPR at "${at} + 4000")
  endwhile()
  math(EXPR bytes "${length} / 2")
  string(APPEND entries "      {\"${name}\", std::string_view(\n${body}      , ${bytes})},\n")
endforeach()
file(WRITE "${OUT}" "// Made by EmbedScripts.cmake.
#include \"harness/workload/python_scripts.h\"

namespace harness {
const std::vector<PythonScript>& python_scripts() {
  static const std::vector<PythonScript> scripts = {
${entries}  };
  return scripts;
}
}  // namespace harness
")
