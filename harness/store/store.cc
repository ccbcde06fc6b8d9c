#include "harness/store/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
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

// What is in the place of the lock file may have come with the directory: it is written to only if it is a plain file
// of one name.
DirectoryLock::DirectoryLock(const fsdp::Folder& directory) {
  constexpr const char* kLock = ".lock";
  fd_ = fsdp::Descriptor(::openat(directory.fd(), kLock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
  struct stat info {};
  const bool linked =
      !fd_ ? errno == ELOOP : ::fstat(fd_.get(), &info) == 0 && (!S_ISREG(info.st_mode) || info.st_nlink > 1);
  if (linked)
    throw fsdp::ConfigError(fmt::format("[{}] is a link or no plain file; take it away", directory.path_of(kLock)));
  if (!fd_) {
    throw fsdp::ConfigError(
        fmt::format("[{}] cannot be written: {}; give a directory that can", directory.path(), std::strerror(errno)));
  }
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    char holder[32] = {};
    const ssize_t n = ::pread(fd_.get(), holder, sizeof holder - 1, 0);
    throw fsdp::ConfigError(
        fmt::format("[{}] another sweep (process {}) is writing here; wait for it to end or give another directory",
                    directory.path(), n > 0 ? holder : "unknown"));
  }
  const std::string self = std::to_string(::getpid());
  if (::ftruncate(fd_.get(), 0) != 0 || ::pwrite(fd_.get(), self.data(), self.size(), 0) < 0) {
    throw fsdp::ConfigError(fmt::format("[{}] cannot be written: {}; give a directory that can",
                                        directory.path_of(kLock), std::strerror(errno)));
  }
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

Store Store::open_for_writing(const std::string& directory, sqlite::GoOnWaiting wait) {
  const fsdp::Folder folder = fsdp::Folder::make(directory);
  std::vector<DirectoryLock> lock;
  lock.emplace_back(folder);
  struct stat info {};
  if (::fstatat(folder.fd(), kDatabase, &info, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(info.st_mode))
    throw fsdp::ConfigError(fmt::format("[{}] is a link or no plain file; take it away", folder.path_of(kDatabase)));
  sqlite::Database db(database_path(directory), sqlite::Database::Mode::kWrite, std::move(wait));
  db.run("BEGIN IMMEDIATE; COMMIT");  // waits for who holds it, which the change of the journal does not
  // FULL: a case that was written is there after a power cut.
  db.run("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON");
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
