// Sweeps of a few cases, made by hand, for tests of what a report says.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "reports/shape.h"

namespace handmade {

inline constexpr fsdp::Nanos kMs = 1'000'000;
inline constexpr fsdp::Bytes kMiB = 1 << 20;

using Settings = std::vector<std::pair<std::string, std::string>>;

// A case that ran in `step_ms`, with an interval of 1 % to both sides.
inline harness::CaseRecord ran(const Settings& axes, std::int64_t units, fsdp::Nanos step_ms, fsdp::Bytes peak_mib) {
  harness::CaseRecord c;
  for (const auto& [name, value] : axes) c.id += (c.id.empty() ? "" : "-") + value;
  c.axes = axes;
  c.settings = axes;
  c.settings.emplace_back("memory_budget", "400MiB");
  c.status = harness::Status::kOk;
  c.units = units;
  c.step_ns = step_ms * kMs;
  c.step_ci_low_ns = step_ms * kMs * 99 / 100;
  c.step_ci_high_ns = step_ms * kMs * 101 / 100;
  c.repetitions = 6;
  c.peak_bytes = peak_mib * kMiB;
  c.peak_cause = "model, backward, optimizer state";
  return c;
}

inline harness::CaseRecord failed(const Settings& axes, std::int64_t units, harness::Status status) {
  harness::CaseRecord c = ran(axes, units, 1, 448);
  c.status = status;
  c.reason = "no room";
  c.step_ns.reset(), c.step_ci_low_ns.reset(), c.step_ci_high_ns.reset();
  if (status == harness::Status::kOom) {
    c.peak_cause = "model, forward, unsharded parameters";
  } else {
    c.peak_bytes.reset(), c.peak_cause.clear();
  }
  return c;
}

inline void trace(harness::CaseRecord& c, harness::Partition ms) {
  for (auto& ns : ms) ns *= kMs;
  c.partition = ms;
  c.traced_step_ns = harness::sum(ms);
}

// root (out of memory), block and sublayer, each without and with backward prefetch.
inline reports::ReportInput granularity() {
  reports::ReportInput in;
  in.sweep.name = "by hand";
  in.sweep.axes = {{"wrap", {"sublayer", "block", "root"}}, {"backward_prefetch", {"none", "pre"}}};
  const auto at = [](const char* wrap, const char* prefetch) {
    return Settings{{"wrap", wrap}, {"backward_prefetch", prefetch}};
  };
  in.cases = {ran(at("sublayer", "none"), 17, 30, 200),
              ran(at("sublayer", "pre"), 17, 25, 210),
              ran(at("block", "none"), 9, 12, 300),
              ran(at("block", "pre"), 9, 10, 320),
              failed(at("root", "none"), 1, harness::Status::kOom),
              failed(at("root", "pre"), 1, harness::Status::kOom)};
  trace(in.cases[0], {6, 2, 3, 2, 2, 0, 1, 13, 0, 1, 0});
  trace(in.cases[3], {2, 5, 1, 0, 1, 0, 0, 0, 0, 1, 0});
  return in;
}

}  // namespace handmade
