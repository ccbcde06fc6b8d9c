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

bool is_communication_name(std::string_view kernel) {
  for (std::string_view prefix : {"nccl", "hccl", "rccl", "msccl"}) {
    if (starts_with(kernel, prefix)) return true;
  }
  return is_emulated_name(kernel) || contains(kernel, "ncclkernel") || contains(kernel, "nccldevkernel");
}

fsdp::SpanKind collective_kind(std::string_view kernel) {
  if (contains(kernel, "allgather") || contains(kernel, "all_gather")) return fsdp::SpanKind::kAllGather;
  if (contains(kernel, "reducescatter") || contains(kernel, "reduce_scatter")) return fsdp::SpanKind::kReduceScatter;
  if (contains(kernel, "allreduce") || contains(kernel, "all_reduce")) return fsdp::SpanKind::kAllReduce;
  return fsdp::SpanKind::kOtherCollective;
}

bool is_allocation_call(std::string_view name) {
  return name.starts_with("cudaMalloc") || name.starts_with("cudaFree") || name.starts_with("cuMemAlloc") ||
         name.starts_with("cuMemFree");
}

}  // namespace harness
