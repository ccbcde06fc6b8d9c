#include "harness/trace/run_sorter.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "fsdp/core/errors.h"

namespace harness {

void temporary_failed(const char* what) {
  throw fsdp::Error(std::string("[sorting] cannot ") + what + " a temporary file: " + std::strerror(errno) +
                    "; set TMPDIR to a place with room");
}

std::FILE* open_temporary() {
  const char* directory = std::getenv("TMPDIR");
  std::string path = std::string(directory != nullptr && *directory != 0 ? directory : "/tmp") + "/shardscope-XXXXXX";
  const int fd = mkstemp(path.data());
  if (fd < 0) temporary_failed("make");
  unlink(path.c_str());
  std::FILE* file = fdopen(fd, "w+b");
  if (file == nullptr) {
    close(fd);
    temporary_failed("make");
  }
  return file;
}

}  // namespace harness
