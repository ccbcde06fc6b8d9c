#include "fsdp/core/errors.h"

namespace fsdp::detail {

void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  throw std::logic_error(std::string("[") + file + ":" + std::to_string(line) + "] check failed: " + condition + " (" +
                         values + ")");
}

}  // namespace fsdp::detail
