#include "harness/trace/output_file.h"

#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "fsdp/core/errors.h"

namespace harness {

struct OutputFile::Impl {
  std::string path, unfinished;
  gzFile file = nullptr;

  [[noreturn]] void fail() const {
    throw fsdp::Error("[" + path + "] cannot write: " + std::strerror(errno) + "; is the disk full?");
  }
};

OutputFile::OutputFile(const std::string& path) : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  impl_->unfinished = path + ".tmp";
  const bool gzip = path.ends_with(".gz");
  impl_->file = gzopen(impl_->unfinished.c_str(), gzip ? "wb6" : "wbT");
  if (impl_->file == nullptr) {
    throw fsdp::ConfigError("[" + path + "] cannot create: " + std::strerror(errno) +
                            "; give a path that can be written");
  }
  gzbuffer(impl_->file, 1 << 18);
}

OutputFile::~OutputFile() {
  if (impl_->file == nullptr) return;
  gzclose(impl_->file);
  std::remove(impl_->unfinished.c_str());
}

void OutputFile::write(std::string_view text) {
  while (!text.empty()) {
    const auto part = static_cast<unsigned>(std::min<std::size_t>(text.size(), 1 << 30));
    if (gzwrite(impl_->file, text.data(), part) != static_cast<int>(part)) impl_->fail();
    text.remove_prefix(part);
  }
}

void OutputFile::close() {
  const int rc = gzclose(impl_->file);
  impl_->file = nullptr;
  if (rc != Z_OK || std::rename(impl_->unfinished.c_str(), impl_->path.c_str()) != 0) {
    const int why = errno;
    std::remove(impl_->unfinished.c_str());
    errno = why;
    impl_->fail();
  }
}

}  // namespace harness
