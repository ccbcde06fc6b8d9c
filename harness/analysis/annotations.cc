#include "harness/analysis/annotations.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "harness/analysis/fsdp1_units.h"
#include "harness/analysis/step_markers.h"

namespace harness {
namespace {

using fsdp::Nanos;
using fsdp::Pass;
using fsdp::SpanKind;

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool all_digits(std::string_view t) {
  return !t.empty() && std::all_of(t.begin(), t.end(), [](char c) { return c >= '0' && c <= '9'; });
}

AnnotationMeaning fsdp2(std::string_view t) {
  AnnotationMeaning m;
  m.kind = AnnotationKind::kFsdp2;
  std::string_view phase = t;
  if (const std::size_t open = t.find(" ("); open != std::string_view::npos && t.back() == ')') {
    phase = t.substr(0, open);
    m.unit = t.substr(open + 2, t.size() - open - 3);
  } else if (const std::size_t of = t.find(" for "); of != std::string_view::npos) {
    phase = t.substr(0, of);
    m.unit = t.substr(of + 5);
  }
  if (phase == "all_gather") m.phase = Phase::kAllGather;
  if (phase == "all_gather_copy_out") m.phase = Phase::kCopyOut;
  if (phase == "all_gather_copy_in") m.phase = Phase::kCopy;
  if (phase == "pre_forward") m.phase = Phase::kPreForward;
  if (phase == "post_forward") m.phase = Phase::kPostForward;
  if (phase == "pre_backward") m.phase = Phase::kPreBackward;
  if (phase.starts_with("post_backward")) m.phase = Phase::kPostBackward;
  if (phase == "post_backward_reduce") m.phase = Phase::kReduce;
  if (phase.find("forward") != std::string_view::npos) m.pass = Pass::kForward;
  if (phase.find("backward") != std::string_view::npos) m.pass = Pass::kBackward;
  if (m.unit.empty() && m.phase != Phase::kNone) m.unit = "[root]";
  m.has_unit = !m.unit.empty();
  return m;
}

AnnotationMeaning fsdp1(std::string_view t) {
  AnnotationMeaning m;
  m.kind = AnnotationKind::kFsdp1;
  if (t == "forward") m.phase = Phase::kForward, m.pass = Pass::kForward;
  if (t == "_pre_forward") m.phase = Phase::kPreForward, m.pass = Pass::kForward;
  if (t == "_pre_backward_hook") m.phase = Phase::kPreBackward, m.pass = Pass::kBackward;
  if (t == "_post_backward_hook") m.phase = Phase::kPostBackward, m.pass = Pass::kBackward;
  if (t.ends_with("_prefetch")) m.phase = Phase::kPrefetch;
  return m;
}

// unit<index>.<pass>.<phase>
AnnotationMeaning own(std::string_view t) {
  AnnotationMeaning m;
  const std::size_t a = t.find('.'), b = a == std::string_view::npos ? a : t.find('.', a + 1);
  if (b == std::string_view::npos || !all_digits(t.substr(4, a - 4))) return m;
  const std::string_view pass = t.substr(a + 1, b - a - 1), phase = t.substr(b + 1);
  m.kind = AnnotationKind::kOwn;
  m.unit = t.substr(0, a);
  m.has_unit = true;
  m.pass = pass == "fwd"                    ? Pass::kForward
           : pass == "bwd" || pass == "rcp" ? Pass::kBackward
           : pass == "opt"                  ? Pass::kOptimizer
                                            : Pass::kNone;
  const auto is = [&](SpanKind kind) { return phase == fsdp::name_of(kind); };
  if (is(SpanKind::kAllGather)) m.phase = Phase::kAllGather;
  if (is(SpanKind::kReduceScatter) || is(SpanKind::kAllReduce)) m.phase = Phase::kReduce;
  if (is(SpanKind::kCompute)) m.phase = Phase::kCompute;
  if (is(SpanKind::kCopy) || phase == "copy_in" || phase == "copy_out" || phase == "cast") m.phase = Phase::kCopy;
  if (is(SpanKind::kOptimizer) || phase == "clip") m.kind = AnnotationKind::kOptimizer;
  return m;
}

}  // namespace

AnnotationMeaning meaning_of(std::string_view t) {
  AnnotationMeaning m;
  if (!step_kind(t).empty()) {
    m.kind = AnnotationKind::kStep;
  } else if (t.starts_with("Optimizer.step")) {
    m.kind = AnnotationKind::kOptimizer;
    m.pass = Pass::kOptimizer;
  } else if (take(t, "FSDP::")) {
    m = fsdp2(t);
  } else if (take(t, "FullyShardedDataParallel.")) {
    m = fsdp1(t);
  } else if (t.starts_with("unit")) {
    m = own(t);
  } else if (take(t, kModuleCall)) {
    m.kind = AnnotationKind::kModule;
    m.module = t;
  } else if (t.starts_with("nccl:") || t.starts_with("gloo:") || t.starts_with("c10d::") || t.starts_with("nccl")) {
    m.kind = AnnotationKind::kCollective;
    m.collective = collective_kind(t);
    if (t.starts_with("c10d::")) m.phase = Phase::kCall;
  }
  return m;
}

void AnnotationIndex::set_process(std::int64_t process) {
  for (Annotation& a : annotations_) a.process = process;
}

void AnnotationIndex::index(Nanos end, const std::vector<std::string>& names, std::vector<std::string>& unit_names) {
  choose_steps(annotations_, names, end, other_steps_);
  for (Annotation& a : annotations_) {
    if (a.kind == AnnotationKind::kStep) steps_.push_back(a);
    if (a.end == kNoTime) a.end = std::max(a.begin, end);
  }
  std::stable_sort(steps_.begin(), steps_.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  for (std::size_t i = 0; i < steps_.size(); ++i) steps_of_[steps_[i].process].push_back(static_cast<std::int32_t>(i));
  std::stable_sort(annotations_.begin(), annotations_.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.thread, a.begin, -a.end) < std::tuple(b.thread, b.begin, -b.end);
  });
  link_parents();
  name_fsdp1_units(annotations_, names, unit_names);
  compute_units_ = ComputeUnits(annotations_);
}

// Walks along parents are as long as ranges are nested: bounded, whatever the file holds.
void AnnotationIndex::link_parents() {
  threads_.clear();
  std::vector<std::uint16_t> depth(annotations_.size());
  std::int32_t open = -1;
  for (std::size_t i = 0; i < annotations_.size(); ++i) {
    Annotation& a = annotations_[i];
    if (threads_.empty() || threads_.back().first != a.thread) {
      threads_.emplace_back(a.thread, i);
      open = -1;
    }
    while (open >= 0 && at(open).end <= a.begin) open = at(open).parent;
    a.parent = open;
    depth[i] = open < 0 ? 1 : static_cast<std::uint16_t>(depth[static_cast<std::size_t>(open)] + 1);
    if (depth[i] <= kDeepestRange) {
      open = static_cast<std::int32_t>(i);
    } else {
      ++too_deep_;
    }
  }
  threads_.emplace_back(kNoThread, annotations_.size());
}

std::int32_t AnnotationIndex::innermost(std::uint32_t thread, Nanos t) const {
  auto it = std::partition_point(threads_.begin(), threads_.end(), [&](const auto& x) { return x.first < thread; });
  if (it == threads_.end() || it->first != thread || std::next(it) == threads_.end()) return -1;
  const auto first = annotations_.begin() + static_cast<std::ptrdiff_t>(it->second);
  const auto last = annotations_.begin() + static_cast<std::ptrdiff_t>(std::next(it)->second);
  const auto after = std::partition_point(first, last, [&](const Annotation& a) { return a.begin <= t; });
  if (after == first) return -1;
  auto i = static_cast<std::int32_t>(after - annotations_.begin()) - 1;
  while (i >= 0 && at(i).end <= t) i = at(i).parent;
  return i;
}

std::int32_t AnnotationIndex::step_at(Nanos t, std::int64_t process) const {
  const auto own = steps_of_.find(process);
  if (own == steps_of_.end()) return -1;
  const auto after = std::partition_point(own->second.begin(), own->second.end(), [&](std::int32_t i) {
    return steps_[static_cast<std::size_t>(i)].begin <= t;
  });
  if (after == own->second.begin()) return -1;
  const Annotation& last = steps_[static_cast<std::size_t>(*std::prev(after))];
  return last.end == kNoTime || t < last.end ? *std::prev(after) : -1;
}

Attribution attribution_at(const AnnotationIndex& index, std::uint32_t thread, Nanos t) {
  Attribution out;
  bool first_phase = true;
  for (std::int32_t i = index.innermost(thread, t); i >= 0; i = index.at(i).parent) {
    const Annotation& a = index.at(i);
    if (a.end <= t) continue;
    if (a.kind == AnnotationKind::kOptimizer) out.optimizer = true;
    out.library_range |= a.library_range;
    const bool gathers =
        (a.phase == Phase::kAllGather || a.phase == Phase::kReduce) && a.kind != AnnotationKind::kFsdp1;
    if (a.kind == AnnotationKind::kCollective || gathers) {
      (gathers ? out.in_gather : out.in_call) = true;
      out.range = i;
      if (out.inner < 0) out.inner = i;
    }
    if (out.collective == SpanKind::kOtherCollective) {
      out.collective = a.phase == Phase::kAllGather ? SpanKind::kAllGather
                       : a.phase == Phase::kReduce  ? SpanKind::kReduceScatter
                                                    : a.collective;
    }
    if (out.unit == fsdp::kNoUnit) out.unit = a.unit;
    if (out.pass == Pass::kNone) out.pass = a.pass;
    if (a.phase != Phase::kNone && a.phase != Phase::kCall && first_phase) {
      first_phase = false;
      out.fsdp_copy = a.phase == Phase::kCopyOut || a.phase == Phase::kCopy || a.phase == Phase::kAllGather ||
                      a.phase == Phase::kReduce;
    }
  }
  return out;
}

std::vector<IssuedCollectives> issued_collectives(const AnnotationIndex& index) {
  std::map<std::pair<fsdp::UnitId, Pass>, IssuedCollectives> rows;
  for (std::size_t i = 0; i < index.all().size(); ++i) {
    const Annotation& a = index.all()[i];
    const bool gathers = a.collective == SpanKind::kAllGather, reduces = a.collective == SpanKind::kReduceScatter;
    // Backends repeat the call under their own name ("nccl:all_gather"): the caller's range counts.
    if (a.kind != AnnotationKind::kCollective || a.phase != Phase::kCall || (!gathers && !reduces)) continue;
    const Attribution at = attribution_at(index, a.thread, a.begin);
    if (at.unit == fsdp::kNoUnit) continue;
    IssuedCollectives& row = rows[{at.unit, at.pass}];
    row.unit = at.unit;
    row.pass = at.pass;
    row.all_gathers += gathers;
    row.reduce_scatters += reduces;
  }
  std::vector<IssuedCollectives> out;
  for (const auto& [key, row] : rows) out.push_back(row);
  return out;
}

}  // namespace harness
