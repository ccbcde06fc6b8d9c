# Writes OUTPUT, a C++ source with the text of every INPUT (files, joined by |).
string(REPLACE "|" ";" inputs "${INPUTS}")
set(text "#include \"harness/cost/presets.h\"\n\n#include <algorithm>\n#include <iterator>\n\nnamespace harness::cost {\nnamespace {\n")
string(APPEND text "struct Preset {\n  const char* name;\n  const char* text;\n};\nconstexpr Preset kPresets[] = {\n")
foreach(file IN LISTS inputs)
  get_filename_component(name "${file}" NAME)
  string(REGEX REPLACE "\\.yaml$" "" name "${name}")
  file(READ "${file}" content)
  string(APPEND text "    {\"${name}\", R\"yaml(${content})yaml\"},\n")
endforeach()
string(APPEND text "};\n}  // namespace\n\nstd::vector<std::string> preset_names() {\n  std::vector<std::string> names;\n"
  "  for (const Preset& p : kPresets) names.emplace_back(p.name);\n  std::sort(names.begin(), names.end());\n  return names;\n}\n\n"
  "std::string preset_text(const std::string& name) {\n  for (const Preset& p : kPresets)\n    if (name == p.name) return p.text;\n  return {};\n}\n\n"
  "}  // namespace harness::cost\n")
file(WRITE "${OUTPUT}" "${text}")
