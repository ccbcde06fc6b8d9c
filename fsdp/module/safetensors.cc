#include "fsdp/module/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "fsdp/core/errors.h"

namespace fsdp {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");
constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 16 << 20;  // some 100,000 arrays; parsed it takes fifty times as much memory

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw EnvironmentError("[state] " + path + ": " + what + ": " + std::strerror(errno) +
                         "; free some space or use another directory");
}
[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw ConfigError("[state] " + path + " " + what + "; use a directory that shardscope has saved");
}

class File {
 public:
  explicit File(const std::string& path)
      : path_(path), fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (fd_ < 0) fail(path_, "cannot be made");
  }
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void write_all(const void* data, std::size_t n) {
    const auto* p = static_cast<const char*>(data);
    while (n > 0) {
      const ssize_t w = write(fd_, p, n);
      if (w < 0 && errno == EINTR) continue;
      if (w <= 0) fail(path_, "cannot be written");
      p += w;
      n -= static_cast<std::size_t>(w);
    }
  }
  void finish() {
    if (fsync(fd_) != 0) fail(path_, "cannot be put on disk");
    const int fd = std::exchange(fd_, -1);
    if (close(fd) != 0) fail(path_, "cannot be closed");
  }

 private:
  const std::string path_;
  int fd_;
};

}  // namespace

void write_safetensors(const std::string& path, const std::vector<FloatArray>& arrays,
                       const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  header["__metadata__"] = metadata;
  std::int64_t at = 0;
  for (const FloatArray& a : arrays) {
    const std::int64_t end = at + a.count * static_cast<std::int64_t>(sizeof(float));
    header[a.name] = {{"dtype", "F32"}, {"shape", {a.count}}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  File file(path);
  file.write_all(&length, kLengthBytes);
  file.write_all(text.data(), text.size());
  for (const FloatArray& a : arrays) file.write_all(a.data, static_cast<std::size_t>(a.count) * sizeof(float));
  file.finish();
}

SafetensorsReader::SafetensorsReader(std::string path)
    : path_(std::move(path)), fd_(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_ < 0)
    throw EnvironmentError("[state] " + path_ + " cannot be read: " + std::strerror(errno) +
                           "; check the path and its permissions");
  try {
    std::uint64_t length = 0;
    read_bytes(0, &length, kLengthBytes);
    if (length > kLongestHeader) refuse(path_, "is no safetensors file");
    std::string text(length, '\0');
    read_bytes(kLengthBytes, text.data(), text.size());
    const auto header = nlohmann::json::parse(text, nullptr, false);
    if (!header.is_object()) refuse(path_, "is no safetensors file");
    const auto begin = static_cast<std::int64_t>(kLengthBytes + length);
    const std::int64_t size = lseek(fd_, 0, SEEK_END) - begin;  // of the arrays
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        metadata_ = value.get<std::map<std::string, std::string>>();
        continue;
      }
      if (value.at("dtype") != "F32") refuse(path_, "holds " + value.at("dtype").dump() + ", not F32, in " + name);
      const auto& given = value.at("data_offsets");
      if (given.size() != 2 || !given[0].is_number_integer() || !given[1].is_number_integer())
        refuse(path_, "has data_offsets of " + name + " that are not a begin and an end");
      const auto offsets = given.get<std::array<std::int64_t, 2>>();
      if (offsets[0] < 0 || offsets[1] < offsets[0] || offsets[1] > size)
        refuse(path_, "is cut short: " + name + " is missing");
      if ((offsets[1] - offsets[0]) % static_cast<std::int64_t>(sizeof(float)) != 0)
        refuse(path_, "holds " + name + " with a part of a number");
      arrays_[name] = {begin + offsets[0], (offsets[1] - offsets[0]) / static_cast<std::int64_t>(sizeof(float))};
    }
  } catch (const nlohmann::json::exception& e) {
    close(fd_);
    refuse(path_, std::string("has a header of another form (") + e.what() + ")");
  } catch (...) {
    close(fd_);
    throw;
  }
}
SafetensorsReader::~SafetensorsReader() { close(fd_); }

std::vector<std::string> SafetensorsReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : arrays_) names.push_back(name);
  return names;
}

void SafetensorsReader::read(const std::string& name, Count begin, Count n, float* out) const {
  const Place& place = arrays_.at(name);
  SHARDSCOPE_CHECK(begin >= 0 && n >= 0 && n <= place.count - begin, name);
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(float));
  read_bytes(place.at + begin * kSize, out, static_cast<std::size_t>(n * kSize));
}

void SafetensorsReader::read_bytes(std::int64_t at, void* out, std::size_t n) const {
  auto* p = static_cast<char*>(out);
  while (n > 0) {
    const ssize_t r = pread(fd_, p, n, at);
    if (r < 0 && errno == EINTR) continue;
    if (r <= 0) refuse(path_, "is cut short");
    p += r;
    at += r;
    n -= static_cast<std::size_t>(r);
  }
}

}  // namespace fsdp
