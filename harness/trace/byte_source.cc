#include "harness/trace/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "fsdp/core/errors.h"

namespace harness {
namespace {
constexpr std::size_t kInput = 1 << 18;
}

struct ByteSource::Impl {
  int fd = -1;
  bool gzip = false, ended = false;
  std::string damage;
  std::vector<unsigned char> input = std::vector<unsigned char>(kInput);
  std::size_t at = 0, filled = 0;  // of input
  std::uint64_t offset = 0;        // bytes of the file taken from the disk
  z_stream z{};

  ~Impl() {
    if (gzip) inflateEnd(&z);
    if (fd >= 0) close(fd);
  }

  // Reads from the disk; 0 at the end or on an error.
  std::size_t load(void* out, std::size_t n) {
    ssize_t got;
    do {
      got = ::read(fd, out, n);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
      damage = std::string("read error at byte ") + std::to_string(offset) + ": " + std::strerror(errno);
      return 0;
    }
    offset += static_cast<std::uint64_t>(got);
    return static_cast<std::size_t>(got);
  }

  bool refill() {
    at = 0;
    filled = load(input.data(), input.size());
    return filled > 0;
  }

  std::uint64_t consumed() const { return offset - (filled - at); }

  std::size_t inflate_into(char* out, std::size_t n) {
    std::size_t done = 0;
    while (done < n && !ended) {
      if (at == filled && !refill()) {
        if (damage.empty()) damage = "gzip stream ends early at byte " + std::to_string(offset) + " of the file";
        ended = true;
        break;
      }
      z.next_in = input.data() + at;
      z.avail_in = static_cast<uInt>(filled - at);
      z.next_out = reinterpret_cast<Bytef*>(out) + done;
      z.avail_out = static_cast<uInt>(std::min<std::size_t>(n - done, 1u << 30));
      const uInt before = z.avail_out;
      const int rc = inflate(&z, Z_NO_FLUSH);
      at = filled - z.avail_in;
      done += before - z.avail_out;
      if (rc == Z_STREAM_END) {
        next_member();
      } else if (rc != Z_OK && rc != Z_BUF_ERROR) {
        damage = "gzip stream is corrupt at byte " + std::to_string(consumed()) + " of the file";
        ended = true;
      }
    }
    return done;
  }

  // Gzip files may be several members one after the other; zeros or other bytes behind the last one are padding.
  void next_member() {
    if (at == filled && !refill()) {
      ended = true;
      return;
    }
    if (input[at] == 0x1f) {
      inflateReset(&z);
    } else {
      ended = true;
    }
  }
};

ByteSource::ByteSource(const std::string& path) : impl_(std::make_unique<Impl>()) {
  impl_->fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat st {};
  if (impl_->fd < 0 || fstat(impl_->fd, &st) != 0) {
    throw fsdp::ConfigError("[" + path + "] " + std::strerror(errno) + "; give the path of a trace");
  }
  if (S_ISDIR(st.st_mode)) throw fsdp::ConfigError("[" + path + "] is a directory; give the path of a trace");
  impl_->refill();
  impl_->gzip = impl_->filled >= 2 && impl_->input[0] == 0x1f && impl_->input[1] == 0x8b;
  if (impl_->gzip) inflateInit2(&impl_->z, 15 + 16);
}

ByteSource::~ByteSource() = default;

std::size_t ByteSource::read(char* out, std::size_t n) {
  Impl& s = *impl_;
  if (s.gzip) return s.inflate_into(out, n);
  std::size_t done = std::min(n, s.filled - s.at);
  std::memcpy(out, s.input.data() + s.at, done);
  s.at += done;
  while (done < n) {
    const std::size_t got = s.load(out + done, n - done);
    if (got == 0) break;
    done += got;
  }
  return done;
}

bool ByteSource::compressed() const { return impl_->gzip; }
const std::string& ByteSource::damage() const { return impl_->damage; }

}  // namespace harness
