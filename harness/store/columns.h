// The columns of each table, once: schema, writing and reading are all driven by these lists. A visitor is called with
// (column name, reference to the field); an enumeration is passed with its last value and kept as its name.
#pragma once
#include <array>
#include <string>
#include <utility>

#include "harness/store/records.h"

namespace harness::store_detail {

// A field that is an enumeration, kept as the text of name_of().
template <class E>
struct Named {
  E& value;
  E last;
};

inline std::string column_name(fsdp::MemoryCategory c) {
  static constexpr std::array<const char*, fsdp::kMemoryCategoryCount> kNames = {
      "parameters", "gradients", "optimizer", "unsharded", "reduce", "activations", "other"};
  return kNames[static_cast<std::size_t>(c)];
}

template <class F>
void columns(fsdp::BytesByCategory& by, const std::string& head, F&& f) {
  for (int i = 0; i < fsdp::kMemoryCategoryCount; ++i) {
    f(head + column_name(static_cast<fsdp::MemoryCategory>(i)) + "_bytes", by[static_cast<std::size_t>(i)]);
  }
}

template <class F>
void columns(Partition& p, F&& f) {
  for (int i = 0; i < kPartitionClassCount; ++i) {
    f(std::string(name_of(static_cast<PartitionClass>(i))) + "_ns", p[static_cast<std::size_t>(i)]);
  }
}

// Table cases. The partition comes as eleven columns that are all there or all empty.
template <class F>
void columns(CaseRecord& r, F&& f) {
  f("id", r.id);
  f("status", Named<Status>{r.status, Status::kSkipped});
  f("reason", r.reason);
  f("units", r.units);
  f("largest_unit_bytes", r.largest_unit_bytes);
  f("step_ns", r.step_ns);
  f("step_mad_ns", r.step_mad_ns);
  f("step_ci_low_ns", r.step_ci_low_ns);
  f("step_ci_high_ns", r.step_ci_high_ns);
  f("ci_coverage", r.ci_coverage);
  f("stopped_by", r.stopped_by);
  f("repetitions", r.repetitions);
  f("tokens_per_s", r.tokens_per_s);
  f("peak_bytes", r.peak_bytes);
  f("peak_cause", r.peak_cause);
  f("traced_step_ns", r.traced_step_ns);
  f("partition_rank", r.partition_rank);
  f("partition_step", r.partition_step);
  f("overlap_pct", r.overlap_pct);
  f("collectives", r.collectives);
  f("communicated_bytes", r.communicated_bytes);
  f("observer_ratio", r.observer_ratio);
  f("emulated", r.emulated);
  f("predicted", r.predicted);
  f("started_at", r.started_at);
  f("finished_at", r.finished_at);
}

template <class F>
void columns(StepRow& r, F&& f) {
  f("rank", r.rank);
  f("step", r.step);
  f("length_ns", r.length);
  columns(r.classes, f);
}

template <class F>
void columns(UnitRecord& r, F&& f) {
  f("name", r.name);
  f("parameters", r.parameters);
  f("unsharded_bytes", r.unsharded_bytes);
  f("shard_bytes", r.shard_bytes);
  f("reduce_bytes", r.reduce_bytes);
  f("strategy", r.strategy);
}

template <class F>
void columns(UnitMetrics& r, F&& f) {
  f("unit", r.unit);
  f("pass", Named<fsdp::Pass>{r.pass, fsdp::Pass::kOptimizer});
  f("all_gathers", r.all_gathers);
  f("reduce_scatters", r.reduce_scatters);
  f("other_collectives", r.other_collectives);
  f("all_gather_bytes", r.all_gather_bytes);
  f("reduce_scatter_bytes", r.reduce_scatter_bytes);
  f("all_gather_ns", r.all_gather_ns);
  f("reduce_scatter_ns", r.reduce_scatter_ns);
  f("exposed_ns", r.exposed_ns);
  f("hidden_ns", r.hidden_ns);
  f("compute_ns", r.compute_ns);
  f("copy_ns", r.copy_ns);
}

template <class F>
void columns(PartitionDetail& r, F&& f) {
  f("class", Named<PartitionClass>{r.cls, PartitionClass::kIdle});
  f("unit", r.unit);
  f("pass", Named<fsdp::Pass>{r.pass, fsdp::Pass::kOptimizer});
  f("collective", Named<fsdp::SpanKind>{r.collective, fsdp::SpanKind::kStep});
  f("ns", r.ns);
}

template <class F>
void columns(RankRecord& r, F&& f) {
  f("rank", r.rank);
  f("peak_bytes", r.peak.total);
  f("peak_unit", r.peak.where.unit);
  f("peak_pass", Named<fsdp::Pass>{r.peak.where.pass, fsdp::Pass::kOptimizer});
  f("peak_cause", r.peak_cause);
  columns(r.peak.at_peak, "at_peak_", f);
  columns(r.category_peaks, "largest_", f);
}

// Plain rows of the lists.
struct PairRow {
  std::string name, value;
};
template <class F>
void columns(PairRow& r, F&& f) {
  f("name", r.name);
  f("value", r.value);
}

struct TextRow {
  std::string text;
};
template <class F>
void columns(TextRow& r, F&& f) {
  f("text", r.text);
}

struct SampleRow {
  fsdp::Nanos ns = 0;
};
template <class F>
void columns(SampleRow& r, F&& f) {
  f("ns", r.ns);
}

struct RankStepRow {
  int rank = 0, step = 0;
  fsdp::Nanos ns = 0;
};
template <class F>
void columns(RankStepRow& r, F&& f) {
  f("rank", r.rank);
  f("step", r.step);
  f("ns", r.ns);
}

struct LossRow {
  std::optional<double> loss, grad_norm;
};
template <class F>
void columns(LossRow& r, F&& f) {
  f("loss", r.loss);
  f("grad_norm", r.grad_norm);
}

}  // namespace harness::store_detail
