#include "harness/trace/output_file.h"

#include <fcntl.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fsdp/core/errors.h"
#include "fsdp/core/files.h"

namespace harness {

struct OutputFile::Impl {
  Impl(const std::string& path, bool follow) : path(path), whole(path, follow) {}
  std::string path;
  fsdp::NewFile whole;
  gzFile file = nullptr;

  [[noreturn]] void fail() const {
    throw fsdp::EnvironmentError("[" + path + "] cannot be written: " + std::strerror(errno) + "; is the disk full?");
  }
};

OutputFile::OutputFile(const std::string& path, bool follow) : impl_(std::make_unique<Impl>(path, follow)) {
  const int own = fcntl(impl_->whole.fd(), F_DUPFD_CLOEXEC, 3);  // gzclose() closes it
  impl_->file = own < 0 ? nullptr : gzdopen(own, path.ends_with(".gz") ? "wb6" : "wbT");
  if (impl_->file == nullptr) {
    const fsdp::Descriptor unused(own);
    impl_->fail();
  }
  gzbuffer(impl_->file, 1 << 18);
}

OutputFile::~OutputFile() {
  if (impl_->file != nullptr) gzclose(impl_->file);
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
  if (rc != Z_OK) impl_->fail();
  impl_->whole.commit();
}

}  // namespace harness
