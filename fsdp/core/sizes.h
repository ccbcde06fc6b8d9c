// Sizes as people read them.
#pragma once
#include <string>

#include "fsdp/core/types.h"

namespace fsdp {

std::string readable_bytes(Bytes n);  // "4.20 MiB"; below a KiB exact: "960 B"

}  // namespace fsdp
