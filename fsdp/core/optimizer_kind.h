// Which update rule a step ends with.
#pragma once
#include <cstdint>

namespace fsdp {

enum class OptimizerKind : std::uint8_t { kAdamW, kSgd };

}  // namespace fsdp
