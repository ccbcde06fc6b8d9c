// What a trace made elsewhere says, in neutral form: operations of devices, the host calls that launched them, host
// annotations. The readers fill it, the partition of foreign traces reads it. Times are integer nanoseconds of the
// trace's own clock.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/core/span.h"

namespace harness {

inline constexpr fsdp::Nanos kNoTime = std::numeric_limits<fsdp::Nanos>::min();
inline constexpr std::uint32_t kNoThread = 0xffffffff;
inline constexpr std::uint32_t kNoName = 0xffffffff;

enum class OpKind : std::uint8_t { kKernel, kMemcpy, kMemset };

// What an operation is to the partition.
enum class OpClass : std::uint8_t { kCompute, kOptimizer, kCommunication, kCopy };

struct DeviceOp {
  fsdp::Nanos begin = 0, end = 0;
  fsdp::Nanos launch_begin = kNoTime, launch_end = kNoTime;  // kNoTime: the trace has no launch record
  std::uint64_t correlation = 0;
  fsdp::Bytes bytes = 0;    // copies: moved; collectives: the full buffer, where the trace tells
  std::uint64_t order = 0;  // of the record in the file: ties
  std::uint32_t name = 0;
  std::uint32_t shape = 0;           // of a kernel's launch, as a hash: grid and block; 0: the trace has none
  std::uint32_t thread = kNoThread;  // of the launch call
  std::int32_t stream = 0;
  std::int32_t step = -1;  // index of the step annotation in which the launch call began; -1: in none
  fsdp::UnitId unit = fsdp::kNoUnit;
  std::int32_t group_size = 0;    // of a collective, where the trace tells
  std::int64_t sequence = -1;     // of a collective in its group, where the trace tells
  std::uint32_t group = kNoName;  // name of the process group, where the trace tells
  std::uint16_t row = 0;          // index into ForeignTrace::rows()
  OpKind kind = OpKind::kKernel;
  OpClass cls = OpClass::kCompute;
  fsdp::Pass pass = fsdp::Pass::kNone;
  fsdp::SpanKind collective = fsdp::SpanKind::kOtherCollective;  // of communication
  bool before_first_step = false;                                // launched before the first step annotation began
  bool emulated = false;                                         // one of our emulated collectives
  bool annotated_copy = false;                                   // a kernel that an FSDP annotation makes a copy
  bool other_library = false;  // communication that is not called after NCCL or its kin: other tools do not see it
  bool on_host = false;  // the host itself did it (host_lanes.h): it had not run ahead, and waited for what was exposed
  bool looks_like_communication = false;  // by name, but it computes too, or the name only hints: left in its class
  std::int32_t range = -1;  // copies that are a collective: the annotation they were launched in; one range is one
};

// One device as one process saw it: what gets a partition of its own.
struct DeviceRow {
  std::int64_t process = 0;
  std::int32_t device = 0;
};

// What a kernel is by its name alone, in any case.
enum class CommunicationName : std::uint8_t {
  kNo,
  kHint,   // communication fused with matrix products or attention, or a name that only hints at it
  kOther,  // of a library that is not NCCL: symmetric memory, multimem, NVSHMEM, DeepEP, FlashInfer, vLLM, MSCCL++, ...
  kNccl,   // begins with nccl, hccl, rccl or msccl, or contains ncclKernel or ncclDevKernel; emulated ones
};
CommunicationName communication_name(std::string_view kernel);
inline bool is_communication_name(std::string_view kernel) {
  return communication_name(kernel) >= CommunicationName::kOther;
}
bool is_emulated_name(std::string_view kernel);
fsdp::SpanKind collective_kind(std::string_view kernel);

// Host calls that allocate, map or free memory, those of expandable segments and pools included: waiting inside one is
// a memory wait.
bool is_allocation_call(std::string_view name);
// Host calls that launch kernels, alone or as a graph: each has device work behind it.
bool is_kernel_launch(std::string_view name);
bool is_graph_launch(std::string_view name);
// Host calls that return when the device has got there.
bool is_synchronizing_call(std::string_view name);

}  // namespace harness
