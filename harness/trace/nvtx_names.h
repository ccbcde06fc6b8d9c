// What our NVTX ranges are called, and whether they are wanted. Pure functions.
//
//   domain    shardscope
//   name      unit3.fwd.all_gather: unit<index>.<pass>.<phase>, pass fwd bwd opt, phase compute copy optimizer
//   all_gather
//             reduce_scatter all_reduce collective; work that belongs to no unit has "model" for the unit; a step is
//             "step", the optimizer as a whole "Optimizer.step"
//   category  the phase (range_category), so that a tool can colour and filter by it
//   payload   64-bit unsigned: bytes of the full buffer; of "step" the step's number
// `measured` is open while steps are traced: the range to capture (`nsys profile -c nvtx -p measured@shardscope`).
// A mark "unit3 = model.layers.3" a unit says which module it is. analysis/annotations.h reads the names back.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "fsdp/device/device.h"

namespace harness {

inline constexpr const char* kNvtxDomain = "shardscope";
inline constexpr const char* kMeasuredRange = "measured";

std::string range_name(const fsdp::WorkTag& tag);

struct RangeCategory {
  std::uint32_t id = 0;
  const char* name = "";
};
RangeCategory range_category(fsdp::SpanKind kind);

// SHARDSCOPE_NVTX=1 or 0 decides; without it, ranges are made when a tool is there to see them: one that is injected
// into NVTX (NVTX_INJECTION64_PATH) or an Nsight Systems session. `variable`: the value of an environment variable, or
// null.
bool ranges_wanted(const std::function<const char*(const char*)>& variable);

}  // namespace harness
