// ExportedArchive: the members of a .pt2 file, which is a zip archive. Nothing in it is executed or unpickled: members
// are bytes, their sizes are those of the archive's directory, and what does not fit there is an error.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace harness {

class ExportedArchive {
 public:
  // Throws fsdp::ConfigError: not there, not a zip, cut off, no exported model inside.
  explicit ExportedArchive(const std::string& path);
  ~ExportedArchive();
  ExportedArchive(const ExportedArchive&) = delete;
  ExportedArchive& operator=(const ExportedArchive&) = delete;

  // Names are below the archive's one folder: "models/model.json".
  bool has(const std::string& name) const { return members_.count(name) != 0; }
  std::uint64_t size(const std::string& name) const;
  // The whole member. Throws ConfigError: longer than `most`, damaged.
  std::string text(const std::string& name, std::uint64_t most) const;
  // Bytes [at, at + count) of a member that is stored as it is. Throws ConfigError.
  void read(const std::string& name, std::uint64_t at, std::uint64_t count, void* to) const;
  // 16 hex digits of names, sizes and checksums of all that a model is read from.
  std::string fingerprint() const;

 private:
  struct Member {
    std::uint64_t index = 0, size = 0;
    std::uint32_t checksum = 0;
    bool stored = true;
  };
  struct Zip;
  const Member& member(const std::string& name) const;
  [[noreturn]] void damaged(const std::string& what) const;

  std::string path_;
  std::unique_ptr<Zip> zip_;
  std::map<std::string, Member> members_;
};

}  // namespace harness
