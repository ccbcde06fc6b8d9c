// The files that settings name: a wrap plan, a prefetch order, a model's config.json, a hardware file. They are read
// once, where settings come in from a user; from there on their texts travel with the settings, and records keep them.
#pragma once
#include <memory>
#include <string>
#include <utility>

#include "harness/store/file_text.h"

namespace harness {

class FileTexts {
 public:
  enum class Disk { kRead, kClosed };
  // What `given` holds is not read from the disk, and `kept` serves where the disk has the file no more. kClosed: the
  // texts come from elsewhere, whose word must not choose what is read here.
  explicit FileTexts(Files given = {}, Files kept = {}, Disk disk = Disk::kRead)
      : taken_(std::move(given)), kept_(std::move(kept)), disk_(disk) {}

  // The text of a file; the same one at every later call. Throws fsdp::ConfigError "PATH does not exist; give `what`".
  std::shared_ptr<const FileText> read(const std::string& path, const std::string& what);
  bool has(const std::string& path) const;
  void give(FileText file);                      // in place of the disk's
  const Files& taken() const { return taken_; }  // all that was read or given

 private:
  Files taken_, kept_;
  Disk disk_;
};

// The text of a small file, or an error that says what the path is instead. Throws fsdp::ConfigError.
std::string read_small_file(const std::string& path, std::size_t limit, const std::string& what);

}  // namespace harness
