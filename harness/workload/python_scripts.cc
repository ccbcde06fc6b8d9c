#include "harness/workload/python_scripts.h"

#include <cstdlib>
#include <fstream>

#include "fsdp/core/errors.h"

namespace harness {

std::string user_python() {
  const char* const chosen = std::getenv("SHARDSCOPE_PYTHON");
  return chosen != nullptr && chosen[0] != '\0' ? chosen : "python3";
}

ScriptFolder::ScriptFolder(const std::string& what) {
  std::string path = (std::filesystem::temp_directory_path() / "shardscope-python-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr)
    throw fsdp::EnvironmentError("[" + what +
                                 "] no temporary folder can be made; set TMPDIR to a folder that can be written");
  path_ = path;
  for (const PythonScript& s : python_scripts()) {
    std::ofstream out(path_ / s.name, std::ios::binary);
    if (!(out << s.text).flush())
      throw fsdp::EnvironmentError("[" + what + "] " + path_.string() +
                                   " cannot be written; make room there, or set TMPDIR to another folder");
  }
}

ScriptFolder::~ScriptFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace harness
