#include "harness/trace/nvtx_names.h"

#include <string_view>

namespace harness {
namespace {

using fsdp::SpanKind;

// As spans are named, but for two.
std::string_view phase_of(SpanKind kind) {
  if (kind == SpanKind::kOtherCollective) return "collective";
  return kind == SpanKind::kMemoryWait ? "slot_wait" : fsdp::name_of(kind);
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
  return (unit + "." + pass_of(tag.pass) + ".").append(phase_of(tag.kind));
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
