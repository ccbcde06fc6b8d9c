// Files on disk. Small ones are read within a bound whatever the path turns out to be. New ones appear under their name
// only when they are whole and the disk has them. A folder is held by its descriptor.
#pragma once
#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace fsdp {

// The text of a small file: a spec, a plan, a config.json. `problem` is empty when it was read, else a clause that
// follows the path: "does not exist", "is a device". A pipe can be read once: where that is enough, `pipes` allows it,
// and gives up on one that gives nothing for 10 s.
struct SmallFile {
  std::string text, problem;
};
enum class Pipes { kRefused, kRead };
SmallFile read_small(const std::string& path, std::size_t limit, Pipes pipes = Pipes::kRefused);
// Of what people write by hand: plans, model configurations, hardware.
inline constexpr std::size_t kLargestSmallFile = 16 << 20;

// A descriptor that closes itself. Movable.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A folder held open: names in it mean what is in it, whatever becomes of its path.
class Folder {
 public:
  // Follows links in `path`: it is the user's own choice. Throws ConfigError naming it.
  static Folder open(const std::string& path);
  // The same, and makes what is absent of it; the disk has the new folders when it returns.
  static Folder make(const std::string& path);
  // The folder `name` in this one, made if absent. A link of that name is refused with ConfigError: a results directory
  // that came by mail must not choose where is written.
  Folder inner(const std::string& name) const;

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  std::string path_of(const std::string& name) const;
  void sync() const;                               // the disk has its entries; throws EnvironmentError
  bool holds_file(const std::string& name) const;  // a regular file that is not empty
  // Takes away what writers that are gone have left of new files: of the file `name`, or of any.
  void remove_unfinished(const std::string& name = "") const;
  void remove(const std::string& name) const;  // a file or link; absent is fine

 private:
  Folder(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Descriptor fd_;
  std::string path_;
};

// A new file under a name of its own until it is whole. Several processes may write the same file: the last one to
// commit wins. A link of that name is replaced, never followed. Killed in between, it leaves ".NAME.PID-N.part", which
// the next writer of the file takes away.
class NewFile {
 public:
  // Throws ConfigError where the file cannot be made; `follow`: the path's folder may be a link.
  explicit NewFile(const std::string& path, bool follow = true);
  NewFile(const Folder& folder, const std::string& name);
  ~NewFile();  // without commit() the file is gone
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // Takes away what earlier writers of this file, that are gone, have left unfinished.
  void remove_unfinished() const;
  void write(std::string_view text);
  int fd() const { return file_.get(); }  // for writers of other libraries
  // The disk has the file, it has its name, and the disk has that too. Throws EnvironmentError (full, broken), else
  // ConfigError.
  void commit();

 private:
  void create();
  [[noreturn]] void fail(const char* what, int error) const;

  std::string path_, name_, unfinished_;
  Descriptor folder_, file_;
};

}  // namespace fsdp
