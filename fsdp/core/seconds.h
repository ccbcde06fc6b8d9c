// A duration in a sentence.
#pragma once
#include <string>

#include "fsdp/core/types.h"

namespace fsdp {

std::string seconds(Nanos t);  // "60 s", "0.25 s"; three digits

}  // namespace fsdp
