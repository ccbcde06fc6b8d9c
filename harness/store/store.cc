#include "harness/store/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "fsdp/core/errors.h"
#include "harness/store/schema.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
constexpr const char* kDatabase = "results.db";

std::string database_path(const std::string& directory_or_file) {
  std::error_code ignored;
  if (fs::is_directory(directory_or_file, ignored)) return (fs::path(directory_or_file) / kDatabase).string();
  return directory_or_file;
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string& directory) {
  const std::string path = (fs::path(directory) / ".lock").string();
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    throw fsdp::ConfigError(
        fmt::format("[{}] cannot be written: {}; give a directory that can", directory, std::strerror(errno)));
  }
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    char holder[32] = {};
    const ssize_t n = ::pread(fd_, holder, sizeof holder - 1, 0);
    ::close(fd_);
    fd_ = -1;
    throw fsdp::ConfigError(
        fmt::format("[{}] another sweep (process {}) is writing here; wait for it to end or give another directory",
                    directory, n > 0 ? holder : "unknown"));
  }
  const std::string self = std::to_string(::getpid());
  if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, self.data(), self.size(), 0) < 0) {
    const std::string why = std::strerror(errno);
    ::close(fd_);
    fd_ = -1;
    throw fsdp::ConfigError(fmt::format("[{}] cannot be written: {}; give a directory that can", path, why));
  }
}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) ::close(fd_);
}

bool Store::exists(const std::string& directory) {
  std::error_code ignored;
  return fs::is_regular_file(fs::path(directory) / kDatabase, ignored);
}

Store Store::open(const std::string& directory_or_file) {
  std::error_code ignored;
  const std::string path = database_path(directory_or_file);
  if (!fs::exists(directory_or_file, ignored)) {
    throw fsdp::ConfigError(
        fmt::format("[{}] does not exist; give the directory that a sweep wrote", directory_or_file));
  }
  if (!fs::is_regular_file(path, ignored)) {
    throw fsdp::ConfigError(
        fmt::format("[{}] holds no {}; give the directory that a sweep wrote", directory_or_file, kDatabase));
  }
  sqlite::Database db(path, sqlite::Database::Mode::kRead);
  store_detail::check_schema(db);
  return {std::move(db), {}};
}

Store Store::open_for_writing(const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (!fs::is_directory(directory, error)) {
    throw fsdp::ConfigError(
        fmt::format("[{}] is not a directory and cannot be made one; give a directory for the results", directory));
  }
  std::vector<DirectoryLock> lock;
  lock.emplace_back(directory);
  sqlite::Database db(database_path(directory), sqlite::Database::Mode::kWrite);
  db.run("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON");
  store_detail::create_schema(db);
  return {std::move(db), std::move(lock)};
}

// A finished sweep leaves one plain file, readable from a directory that cannot be written.
Store::~Store() {
  if (lock_.empty()) return;
  try {
    db_.run("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE");
  } catch (const std::exception&) {  // a reader is at work: the log stays, which is as good
  }
}

bool Store::has_sweep() { return db_.prepare("SELECT 1 FROM sweep").step(); }

}  // namespace harness
