#include "harness/analysis/device_trace.h"

#include <algorithm>
#include <cctype>

namespace harness {
namespace {

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

bool starts_with(std::string_view text, std::string_view lower_prefix) {
  return text.size() >= lower_prefix.size() && std::equal(lower_prefix.begin(), lower_prefix.end(), text.begin(),
                                                          [](char a, char b) { return a == lower(b); });
}

bool contains(std::string_view text, std::string_view lower_part) {
  return std::search(text.begin(), text.end(), lower_part.begin(), lower_part.end(),
                     [](char a, char b) { return lower(a) == b; }) != text.end();
}

}  // namespace

bool is_emulated_name(std::string_view kernel) { return starts_with(kernel, "emu_collective"); }

fsdp::SpanKind collective_kind(std::string_view kernel) {
  if (contains(kernel, "allgather") || contains(kernel, "all_gather")) return fsdp::SpanKind::kAllGather;
  if (contains(kernel, "reducescatter") || contains(kernel, "reduce_scatter")) return fsdp::SpanKind::kReduceScatter;
  for (std::string_view part : {"allreduce", "all_reduce", "cross_device_reduce", "one_shot_reduce"}) {
    if (contains(kernel, part)) return fsdp::SpanKind::kAllReduce;
  }
  return fsdp::SpanKind::kOtherCollective;
}

bool is_allocation_call(std::string_view name) {
  static constexpr std::string_view kPrefixes[] = {"cudaMalloc",
                                                   "cudaFree",
                                                   "cudaHostAlloc",
                                                   "cudaHostRegister",
                                                   "cudaHostUnregister",
                                                   "cudaMemPool",
                                                   "cuMemAlloc",
                                                   "cuMemFree",
                                                   "cuMemCreate",
                                                   "cuMemRelease",
                                                   "cuMemMap",
                                                   "cuMemUnmap",
                                                   "cuMemSetAccess",
                                                   "cuMemAddress",
                                                   "cuMemPool",
                                                   "cuMemHostAlloc",
                                                   "cuMemHostRegister",
                                                   "cuMemHostUnregister",
                                                   "cuMemRetain",
                                                   "cuMemImport",
                                                   "cuMemExport",
                                                   "cuMulticast",
                                                   "hipMalloc",
                                                   "hipFree",
                                                   "hipExtMalloc",
                                                   "hipHostMalloc",
                                                   "hipHostAlloc",
                                                   "hipHostFree",
                                                   "hipHostRegister",
                                                   "hipHostUnregister",
                                                   "hipMemAlloc",
                                                   "hipMemFree",
                                                   "hipMemCreate",
                                                   "hipMemRelease",
                                                   "hipMemMap",
                                                   "hipMemUnmap",
                                                   "hipMemSetAccess",
                                                   "hipMemAddress",
                                                   "hipMemPool",
                                                   "hipMemRetain",
                                                   "hipMemImport",
                                                   "hipMemExport",
                                                   "zeMemAlloc",
                                                   "zeMemFree",
                                                   "zeVirtualMem",
                                                   "zePhysicalMem",
                                                   "urUSM",
                                                   "aclrtMalloc",
                                                   "aclrtFree",
                                                   "aclrtMapMem",
                                                   "aclrtUnmapMem",
                                                   "aclrtReserveMem",
                                                   "aclrtReleaseMem"};
  const auto is = [&](std::string_view p) { return name.starts_with(p); };
  // Arrays and textures aside, cudaMalloc...; a query or a copy is none of them.
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes), is) && !name.starts_with("cuMemAllocationGranularity");
}

bool is_graph_launch(std::string_view name) { return contains(name, "graphlaunch"); }

bool is_kernel_launch(std::string_view name) {
  return contains(name, "launchkernel") || contains(name, "launchcooperative") || is_graph_launch(name) ||
         contains(name, "appendlaunch") || starts_with(name, "cugridlaunch") || name == "cuLaunch" ||
         starts_with(name, "cudalaunch_v") || name == "cudaLaunch";
}

bool is_synchronizing_call(std::string_view name) {
  if (contains(name, "synchronize")) return true;
  const bool copy = starts_with(name, "cudamemcpy") || starts_with(name, "cumemcpy") || starts_with(name, "hipmemcpy");
  return copy && !contains(name, "async");
}

}  // namespace harness
