// A library that is preloaded into `shardscope` and stands between it and the disk, for crash_points.py.
//   DISK_DIR     only what happens below this directory counts
//   DISK_FAULT   kill:N, EIO:N or ENOSPC:N: what the N-th change (from 1) of the disk meets; the call is not made
//   DISK_COUNT   a file that holds the number of changes so far
//   DISK_SHADOW  a directory that keeps what a power cut would leave: f.INODE is a file as it was last synced, d.INODE
//   the
//                entries ("f|d INODE NAME") of a directory as they were last synced
//   MALLOC_FAULT N: the N-th allocation after main() began fails
// A change is a call that creates, writes, truncates, renames, removes or syncs. Other programs (the ranks) are left
// alone.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

extern "C" void* __libc_malloc(std::size_t);
extern "C" void* __libc_calloc(std::size_t, std::size_t);
extern "C" void* __libc_realloc(void*, std::size_t);

namespace {

std::atomic<long> allocations{0};
long failing_allocation = 0;
bool ready = false;

// Plain arrays: the constructor below may run before those of objects.
char directory[4096], shadow[4096], fault[16];
long faulty = 0, count = 0;
int count_file = -1;

// NOLINTNEXTLINE: runs before main(), in every program that the preload reaches
__attribute__((constructor)) void set_up() {
  if (std::strcmp(program_invocation_short_name, "shardscope") != 0) return;
  const auto text = [](const char* name) { return getenv(name) != nullptr ? getenv(name) : ""; };
  std::strncpy(directory, text("DISK_DIR"), sizeof directory - 1);
  std::strncpy(shadow, text("DISK_SHADOW"), sizeof shadow - 1);
  std::sscanf(text("DISK_FAULT"), "%15[^:]:%ld", fault, &faulty);
  if (const char* c = text("DISK_COUNT"); *c != '\0')
    count_file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, c, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  failing_allocation = std::atol(text("MALLOC_FAULT"));
  ready = directory[0] != '\0';
}

std::string path_of(int fd) {
  char text[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link.c_str(), text, sizeof text);
  return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : "";
}
std::string path_of(int folder, const char* name) {
  if (name[0] == '/') return name;
  char here[4096];
  return (folder == AT_FDCWD ? std::string(getcwd(here, sizeof here) ? here : "") : path_of(folder)) + "/" + name;
}
bool counts(const std::string& path) { return ready && path.compare(0, std::strlen(directory), directory) == 0; }

// True: the call is not made, errno is set.
bool meets_fault(const std::string& path) {
  if (!counts(path)) return false;
  ++count;
  if (count_file >= 0) {
    char text[32];
    const int n = std::snprintf(text, sizeof text, "%ld\n", count);
    syscall(SYS_pwrite64, count_file, text, n, 0);
  }
  if (count != faulty) return false;
  if (std::strcmp(fault, "kill") == 0) syscall(SYS_kill, getpid(), SIGKILL);
  errno = std::strcmp(fault, "ENOSPC") == 0 ? ENOSPC : EIO;
  return true;
}

void put(const std::string& name, const std::string& text) {
  const int out = static_cast<int>(syscall(SYS_openat, AT_FDCWD, (std::string(shadow) + "/" + name).c_str(),
                                           O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  syscall(SYS_write, out, text.data(), text.size());
  syscall(SYS_close, out);
}

std::string entries_of(int fd) {
  std::string text;
  DIR* d = opendir(path_of(fd).c_str());
  if (d == nullptr) return text;
  while (const dirent* e = readdir(d)) {
    if (std::strcmp(e->d_name, ".") == 0 || std::strcmp(e->d_name, "..") == 0) continue;
    text += (e->d_type == DT_DIR ? "d " : "f ") + std::to_string(e->d_ino) + " " + e->d_name + "\n";
  }
  closedir(d);
  return text;
}

std::string content_of(int fd) {
  std::string text;
  char piece[1 << 16];
  const int in = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path_of(fd).c_str(), O_RDONLY | O_CLOEXEC));
  for (ssize_t n; (n = syscall(SYS_read, in, piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(n));
  syscall(SYS_close, in);
  return text;
}

void remember(int fd) {
  struct stat info {};
  if (shadow[0] == '\0' || !counts(path_of(fd)) || fstat(fd, &info) != 0) return;
  const std::string inode = std::to_string(info.st_ino);
  S_ISDIR(info.st_mode) ? put("d." + inode, entries_of(fd)) : put("f." + inode, content_of(fd));
}

// A new file may get the number of one that is gone.
int created(int fd, int flags) {
  struct stat info {};
  if (fd >= 0 && (flags & O_CREAT) != 0 && shadow[0] != '\0' && counts(path_of(fd)) && fstat(fd, &info) == 0 &&
      info.st_size == 0)
    syscall(SYS_unlinkat, AT_FDCWD, (std::string(shadow) + "/f." + std::to_string(info.st_ino)).c_str(), 0);
  return fd;
}

int open_at(int folder, const char* name, int flags, mode_t mode) {
  if (ready && (flags & (O_CREAT | O_TRUNC)) != 0 && meets_fault(path_of(folder, name))) return -1;
  const int fd = static_cast<int>(syscall(SYS_openat, folder, name, flags, mode));
  return ready ? created(fd, flags) : fd;
}

bool fails_allocation() { return failing_allocation > 0 && ++allocations == failing_allocation; }

}  // namespace

#define WITH_MODE(flags, last)                                      \
  mode_t mode = 0;                                                  \
  if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) { \
    va_list rest;                                                   \
    va_start(rest, last);                                           \
    mode = va_arg(rest, mode_t);                                    \
    va_end(rest);                                                   \
  }

extern "C" {

int open(const char* name, int flags, ...) {
  WITH_MODE(flags, flags)
  return open_at(AT_FDCWD, name, flags, mode);
}
int open64(const char* name, int flags, ...) {
  WITH_MODE(flags, flags)
  return open_at(AT_FDCWD, name, flags, mode);
}
int openat(int folder, const char* name, int flags, ...) {
  WITH_MODE(flags, flags)
  return open_at(folder, name, flags, mode);
}
int openat64(int folder, const char* name, int flags, ...) {
  WITH_MODE(flags, flags)
  return open_at(folder, name, flags, mode);
}
ssize_t write(int fd, const void* data, size_t n) {
  return ready && meets_fault(path_of(fd)) ? -1 : syscall(SYS_write, fd, data, n);
}
ssize_t pwrite(int fd, const void* data, size_t n, off_t at) {
  return ready && meets_fault(path_of(fd)) ? -1 : syscall(SYS_pwrite64, fd, data, n, at);
}
ssize_t pwrite64(int fd, const void* data, size_t n, off64_t at) {
  return ready && meets_fault(path_of(fd)) ? -1 : syscall(SYS_pwrite64, fd, data, n, at);
}
int ftruncate(int fd, off_t n) {
  return ready && meets_fault(path_of(fd)) ? -1 : static_cast<int>(syscall(SYS_ftruncate, fd, n));
}
int ftruncate64(int fd, off64_t n) {
  return ready && meets_fault(path_of(fd)) ? -1 : static_cast<int>(syscall(SYS_ftruncate, fd, n));
}
int fsync(int fd) {
  if (ready && meets_fault(path_of(fd))) return -1;
  const int rc = static_cast<int>(syscall(SYS_fsync, fd));
  if (ready && rc == 0) remember(fd);
  return rc;
}
int fdatasync(int fd) {
  if (ready && meets_fault(path_of(fd))) return -1;
  const int rc = static_cast<int>(syscall(SYS_fdatasync, fd));
  if (ready && rc == 0) remember(fd);
  return rc;
}
int rename(const char* from, const char* to) {
  return ready && meets_fault(path_of(AT_FDCWD, to))
             ? -1
             : static_cast<int>(syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}
int renameat(int a, const char* from, int b, const char* to) {
  return ready && meets_fault(path_of(b, to)) ? -1 : static_cast<int>(syscall(SYS_renameat, a, from, b, to));
}
int unlink(const char* name) {
  return ready && meets_fault(path_of(AT_FDCWD, name)) ? -1
                                                       : static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, name, 0));
}
int unlinkat(int folder, const char* name, int flags) {
  return ready && meets_fault(path_of(folder, name)) ? -1
                                                     : static_cast<int>(syscall(SYS_unlinkat, folder, name, flags));
}
int rmdir(const char* name) {
  return ready && meets_fault(path_of(AT_FDCWD, name))
             ? -1
             : static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, name, AT_REMOVEDIR));
}
int mkdir(const char* name, mode_t mode) {
  return ready && meets_fault(path_of(AT_FDCWD, name)) ? -1
                                                       : static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, name, mode));
}
int mkdirat(int folder, const char* name, mode_t mode) {
  return ready && meets_fault(path_of(folder, name)) ? -1 : static_cast<int>(syscall(SYS_mkdirat, folder, name, mode));
}

void* malloc(size_t n) {
  if (!fails_allocation()) return __libc_malloc(n);
  errno = ENOMEM;
  return nullptr;
}
void* calloc(size_t n, size_t size) {
  if (!fails_allocation()) return __libc_calloc(n, size);
  errno = ENOMEM;
  return nullptr;
}
void* realloc(void* p, size_t n) {
  if (!fails_allocation()) return __libc_realloc(p, n);
  errno = ENOMEM;
  return nullptr;
}
}
