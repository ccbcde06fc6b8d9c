#include "fsdp/core/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "fsdp/core/errors.h"

namespace fsdp {
namespace {

constexpr int kPatience_ms = 10'000;
constexpr std::size_t kLongestStem = 200;  // of a name that must not pass 255 bytes with what is put around it
constexpr const char* kUnfinished = ".part";

// Trouble of the machine rather than of what was asked for.
bool of_the_machine(int error) {
  for (const int e : {ENOSPC, EDQUOT, EIO, EFBIG, EMFILE, ENFILE, ENOMEM, EROFS})
    if (error == e) return true;
  return false;
}

[[noreturn]] void refuse(const std::string& path, const std::string& what, int error, const char* remedy) {
  const std::string text = "[" + path + "] " + what + ": " + std::strerror(error) + "; ";
  if (error == EROFS || !of_the_machine(error)) throw ConfigError(text + remedy);
  throw EnvironmentError(text + (error == ENOSPC || error == EDQUOT ? "make room on the disk"
                                 : error == EFBIG                   ? "raise `ulimit -f`"
                                 : error == EMFILE                  ? "raise `ulimit -n`"
                                                                    : "see that the disk and the machine are well"));
}

std::string parent_of(const std::string& path) {
  const auto slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}
std::string name_in(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

std::string without_end(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.empty() ? "." : path;
}

std::string too_large(std::size_t limit) {
  constexpr std::size_t kMiB = 1 << 20;
  return "is larger than " + (limit % kMiB == 0 ? std::to_string(limit / kMiB) + "MiB" : std::to_string(limit) + "B");
}

// Not a file whose text can be had; empty: it can.
std::string kind_problem(const struct stat& info, std::size_t limit, Pipes pipes) {
  if (S_ISDIR(info.st_mode)) return "is a directory";
  if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)) return "is a device";
  if (S_ISFIFO(info.st_mode) && pipes == Pipes::kRefused) return "is a pipe, and is read more than once";
  if (S_ISSOCK(info.st_mode)) return "is a socket";
  if (S_ISREG(info.st_mode) && static_cast<std::uint64_t>(info.st_size) > limit) return too_large(limit);
  return {};
}

std::string read_all(int fd, std::size_t limit, bool pipe, std::string& text) {
  constexpr std::size_t kPiece = 1 << 16;
  std::vector<char> piece(kPiece);
  while (true) {
    pollfd one{fd, POLLIN, 0};
    if (pipe && poll(&one, 1, kPatience_ms) == 0) return "is a pipe that gives nothing";
    const ssize_t n = read(fd, piece.data(), kPiece);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return std::string("cannot be read: ") + std::strerror(errno);
    if (n == 0) return {};
    text.append(piece.data(), static_cast<std::size_t>(n));
    if (text.size() > limit) return too_large(limit);
  }
}

bool unfinished_of(std::string_view entry, const std::string& name) {
  const std::string head = "." + name.substr(0, kLongestStem) + (name.empty() ? "" : ".");
  return entry.starts_with(head) && entry.ends_with(kUnfinished);
}

// A writer holds a lock on what it has not finished.
void remove_if_left(int folder, const char* entry) {
  const Descriptor file(openat(folder, entry, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) unlinkat(folder, entry, 0);
}

void remove_left(int folder, const std::string& name) {
  const int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = own < 0 ? nullptr : fdopendir(own);
  if (entries == nullptr) {
    const Descriptor unused(own);
    return;
  }
  while (const dirent* e = readdir(entries))
    if (unfinished_of(e->d_name, name)) remove_if_left(folder, e->d_name);
  closedir(entries);
}

}  // namespace

SmallFile read_small(const std::string& path, std::size_t limit, Pipes pipes) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) {
    const bool absent = errno == ENOENT || errno == ENOTDIR;
    return {"", absent ? "does not exist" : std::string("cannot be read: ") + std::strerror(errno)};
  }
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return {"", std::string("cannot be read: ") + std::strerror(errno)};
  SmallFile out;
  out.problem = kind_problem(info, limit, pipes);
  if (out.problem.empty()) out.problem = read_all(file.get(), limit, S_ISFIFO(info.st_mode), out.text);
  if (!out.problem.empty()) out.text.clear();
  return out;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Folder Folder::open(const std::string& path) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) refuse(path, "cannot be opened as a directory", errno, "give a directory that exists");
  return {std::move(fd), without_end(path)};
}

Folder Folder::make(const std::string& given) {
  const std::string path = without_end(given);
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd) return {std::move(fd), path};
  if (errno == ENOENT) {
    const Folder parent = make(parent_of(path));
    if (mkdirat(parent.fd(), name_in(path).c_str(), 0777) != 0 && errno != EEXIST)
      refuse(path, "cannot be made", errno, "give a directory that can");
    parent.sync();
    fd = Descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  if (!fd) refuse(path, "is not a directory and cannot be made one", errno, "give a directory for the results");
  return {std::move(fd), path};
}

Folder Folder::inner(const std::string& name) const {
  const auto open_it = [&] {
    return Descriptor(openat(fd(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  };
  Descriptor found = open_it();
  if (!found && errno == ENOENT) {
    if (mkdirat(fd(), name.c_str(), 0777) != 0 && errno != EEXIST)
      refuse(path_of(name), "cannot be made", errno, "give a directory that can be written");
    sync();
    found = open_it();
  }
  if (!found && (errno == ELOOP || errno == ENOTDIR))
    throw ConfigError("[" + path_of(name) + "] is a link or a file where results need a directory; move it away");
  if (!found) refuse(path_of(name), "cannot be opened", errno, "see that it is a directory that can be read");
  return {std::move(found), path_of(name)};
}

std::string Folder::path_of(const std::string& name) const { return (path_ == "/" ? "" : path_) + "/" + name; }

void Folder::sync() const {
  // A file system that knows no such order says EINVAL.
  if (fsync(fd()) != 0 && errno != EINVAL) refuse(path_, "cannot be put on disk", errno, "use another disk");
}

bool Folder::holds_file(const std::string& name) const {
  struct stat info {};
  return fstatat(fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) && info.st_size > 0;
}

void Folder::remove_unfinished(const std::string& name) const { remove_left(fd(), name); }

void Folder::remove(const std::string& name) const {
  if (unlinkat(fd(), name.c_str(), 0) != 0 && errno != ENOENT)
    refuse(path_of(name), "cannot be taken away", errno, "move it away");
}

NewFile::NewFile(const std::string& path, bool follow) : path_(path), name_(name_in(path)) {
  const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW);
  folder_ = Descriptor(open(parent_of(path).c_str(), flags));
  if (!folder_) fail("cannot be written", errno);
  create();
}

NewFile::NewFile(const Folder& folder, const std::string& name) : path_(folder.path_of(name)), name_(name) {
  folder_ = Descriptor(fcntl(folder.fd(), F_DUPFD_CLOEXEC, 3));
  if (!folder_) fail("cannot be written", errno);
  create();
}

// The lock says that somebody is at work. Who takes away what was left may have locked, or removed, the new file in the
// moment before: another name then.
void NewFile::create() {
  static std::atomic<unsigned> count{0};
  struct stat info {};
  const bool there = fstatat(folder_.get(), name_.c_str(), &info, 0) == 0;
  if (name_.empty() || (there && S_ISDIR(info.st_mode))) fail("cannot be written", EISDIR);
  if (there && !S_ISREG(info.st_mode))
    throw ConfigError("[" + path_ + "] is not a plain file and is not written to; give the name of a plain file");
  for (int attempt = 0; attempt < 1000; ++attempt) {
    unfinished_ = "." + name_.substr(0, kLongestStem) + "." + std::to_string(getpid()) + "-" + std::to_string(count++) +
                  kUnfinished;
    file_ = Descriptor(
        openat(folder_.get(), unfinished_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!file_ && errno == EEXIST) continue;
    if (!file_) fail("cannot be written", errno);
    const bool locked = flock(file_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    if (locked && fstat(file_.get(), &info) == 0 && info.st_nlink > 0) return;
  }
  fail("cannot be written", EEXIST);
}

NewFile::~NewFile() {
  if (file_) unlinkat(folder_.get(), unfinished_.c_str(), 0);
}

void NewFile::remove_unfinished() const { remove_left(folder_.get(), name_); }

void NewFile::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(file_.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("cannot be written", n < 0 ? errno : EIO);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

void NewFile::commit() {
  if (fsync(file_.get()) != 0 && errno != EINVAL) fail("cannot be put on disk", errno);
  if (renameat(folder_.get(), unfinished_.c_str(), folder_.get(), name_.c_str()) != 0) fail("cannot be written", errno);
  file_ = Descriptor();
  if (fsync(folder_.get()) != 0 && errno != EINVAL) fail("cannot be put on disk", errno);
}

void NewFile::fail(const char* what, int error) const {
  refuse(path_, what, error, "give a path in a directory that exists and can be written to");
}

}  // namespace fsdp
