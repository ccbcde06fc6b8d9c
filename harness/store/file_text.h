// A file that settings name, as it was when they were read.
#pragma once
#include <memory>
#include <string>
#include <vector>

namespace harness {

struct FileText {
  std::string path, text;
};
using Files = std::vector<std::shared_ptr<const FileText>>;

}  // namespace harness
