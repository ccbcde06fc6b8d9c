#include "harness/trace/nvtx_names.h"

#include <string_view>

namespace harness {
namespace {

using fsdp::SpanKind;

const char* phase_of(SpanKind kind) {
  switch (kind) {
    case SpanKind::kCompute:
      return "compute";
    case SpanKind::kOptimizer:
      return "optimizer";
    case SpanKind::kCopy:
      return "copy";
    case SpanKind::kAllGather:
      return "all_gather";
    case SpanKind::kReduceScatter:
      return "reduce_scatter";
    case SpanKind::kAllReduce:
      return "all_reduce";
    case SpanKind::kOtherCollective:
      return "collective";
    case SpanKind::kWait:
      return "wait";
    case SpanKind::kMemoryWait:
      return "slot_wait";
    case SpanKind::kStep:
      return "step";
  }
  return "other";
}

const char* pass_of(fsdp::Pass pass) {
  switch (pass) {
    case fsdp::Pass::kForward:
      return "fwd";
    case fsdp::Pass::kBackward:
      return "bwd";
    case fsdp::Pass::kOptimizer:
      return "opt";
    case fsdp::Pass::kNone:
      break;
  }
  return "none";
}

}  // namespace

std::string range_name(const fsdp::WorkTag& tag) {
  if (tag.kind == SpanKind::kStep) return "step";
  if (tag.kind == SpanKind::kOptimizer && tag.unit == fsdp::kNoUnit) return "Optimizer.step";
  const std::string unit = tag.unit == fsdp::kNoUnit ? "model" : "unit" + std::to_string(tag.unit);
  return unit + "." + pass_of(tag.pass) + "." + phase_of(tag.kind);
}

RangeCategory range_category(SpanKind kind) {
  switch (kind) {
    case SpanKind::kAllGather:
      return {1, "all-gather"};
    case SpanKind::kCompute:
      return {2, "compute"};
    case SpanKind::kReduceScatter:
      return {3, "reduce-scatter"};
    case SpanKind::kAllReduce:
      return {4, "all-reduce"};
    case SpanKind::kCopy:
      return {5, "copy"};
    case SpanKind::kOtherCollective:
      return {6, "other collective"};
    case SpanKind::kOptimizer:
      return {8, "optimizer"};
    case SpanKind::kWait:
    case SpanKind::kMemoryWait:
      return {10, "wait"};
    case SpanKind::kStep:
      break;
  }
  return {15, "step"};
}

bool ranges_wanted(const std::function<const char*(const char*)>& variable) {
  const auto value = [&](const char* name) {
    const char* text = variable(name);
    return std::string_view(text == nullptr ? "" : text);
  };
  if (const std::string_view asked = value("SHARDSCOPE_NVTX"); !asked.empty()) return asked != "0" && asked != "off";
  return !value("NVTX_INJECTION64_PATH").empty() || !value("NSYS_PROFILING_SESSION_ID").empty();
}

}  // namespace harness
