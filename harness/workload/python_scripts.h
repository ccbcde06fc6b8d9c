// The Python of this program (harness/workload/python), embedded by CMake: what exports a user's model, and the ranks
// of PyTorch's own FSDP.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace harness {

struct PythonScript {
  const char* name;
  std::string_view text;
};
const std::vector<PythonScript>& python_scripts();

// The user's Python: SHARDSCOPE_PYTHON, else python3.
std::string user_python();

// The scripts as files in a temporary folder of this process, for as long as it lives. Throws fsdp::EnvironmentError
// "[what] ..." where none can be made.
class ScriptFolder {
 public:
  explicit ScriptFolder(const std::string& what);
  ~ScriptFolder();
  ScriptFolder(const ScriptFolder&) = delete;
  ScriptFolder& operator=(const ScriptFolder&) = delete;
  std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace harness
