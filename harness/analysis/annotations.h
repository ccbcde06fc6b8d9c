// What host annotations say about the work launched inside them: step, optimizer, FSDP unit, pass, collective.
//
//   ProfilerStep#12, step, step 12, iteration 3                  a step; of several kinds one is chosen: step_markers.h
//   Optimizer.step#AdamW.step                                    the optimizer
//   FSDP::all_gather (layers.0), FSDP::pre_backward, ...          PyTorch FSDP2: unit and phase; no brackets: the root
//   FullyShardedDataParallel.forward, ._pre_backward_hook, ...    PyTorch FSDP1: phase; its units: fsdp1_units.h
//   nn.Module: Block_2                                            a module's call, as torch.profiler(with_stack) has it
//   unit3.bwd.all_gather                                          our own NVTX ranges
//   nccl:all_gather, gloo:all_reduce, c10d::_allgather_base_      a collective issued by the host
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/analysis/compute_units.h"
#include "harness/analysis/device_trace.h"

namespace harness {

enum class AnnotationKind : std::uint8_t { kOther, kStep, kOptimizer, kFsdp2, kFsdp1, kOwn, kCollective, kModule };

// What part of FSDP's work an annotation brackets.
enum class Phase : std::uint8_t {
  kNone,
  kAllGather,  // FSDP2: copy-in and the collective
  kCopyOut,    // FSDP2: all_gather_copy_out
  kReduce,     // FSDP2: copy-in, reduce-scatter, scaling
  kCompute,
  kCopy,
  kForward,  // FSDP1: forward of a unit
  kPreForward,
  kPostForward,
  kPreBackward,
  kPostBackward,
  kPrefetch,  // inside a pre- or post-phase: for the next unit
  kCall,      // a collective: the caller's range (c10d::), not the backend's (nccl:, gloo:)
};

// Ranges nested deeper than that on one thread are looked through: no program nests what matters here so deep.
inline constexpr int kDeepestRange = 256;

// What a profiler with Python stacks calls a module's call by: before class and number.
inline constexpr std::string_view kModuleCall = "nn.Module: ";

struct AnnotationMeaning {
  AnnotationKind kind = AnnotationKind::kOther;
  Phase phase = Phase::kNone;
  fsdp::Pass pass = fsdp::Pass::kNone;
  bool has_unit = false;
  std::string_view unit;    // a view into the text; the root of FSDP2 is "[root]"
  std::string_view module;  // likewise: "Block_2"
  fsdp::SpanKind collective = fsdp::SpanKind::kOtherCollective;
};
AnnotationMeaning meaning_of(std::string_view text);

struct Annotation {
  fsdp::Nanos begin = 0, end = 0;  // end == kNoTime: cut, it never ended
  std::uint32_t thread = 0;
  AnnotationKind kind = AnnotationKind::kOther;
  Phase phase = Phase::kNone;
  fsdp::Pass pass = fsdp::Pass::kNone;
  fsdp::SpanKind collective = fsdp::SpanKind::kOtherCollective;
  fsdp::UnitId unit = fsdp::kNoUnit;
  std::int64_t process = 0;
  std::int32_t parent = -1;  // after index(): the range around it on the same thread
  std::uint32_t name = 0;    // of steps their text, of modules class and number: an index that the owner of both keeps
  bool library_range = false;  // of the communication library itself (NVTX domain NCCL)
};

// Looks up what was around a moment on a thread.
class AnnotationIndex {
 public:
  void add(const Annotation& a) { annotations_.push_back(a); }
  // Sorts, links parents, gives FSDP1 ranges their units: `unit_names` grows by those. `names`: what Annotation::name
  // points into. `end` closes ranges that were cut.
  void index(fsdp::Nanos end, const std::vector<std::string>& names, std::vector<std::string>& unit_names);

  // Innermost range on the thread that holds t; -1: none. Follow `parent` outwards.
  std::int32_t innermost(std::uint32_t thread, fsdp::Nanos t) const;
  const Annotation& at(std::int32_t i) const { return annotations_[static_cast<std::size_t>(i)]; }
  const std::vector<Annotation>& all() const { return annotations_; }  // by thread, then begin

  // Steps in time order, of all threads.
  const std::vector<Annotation>& steps() const { return steps_; }
  // Markers of steps that are not taken as such, in words, one sentence for each process that has some.
  const std::vector<std::string>& other_steps() const { return other_steps_; }
  std::size_t too_deep() const { return too_deep_; }  // ranges that were looked through
  void set_process(std::int64_t process);             // before index(): all are of this one
  // Index of the step that holds t, -1: none.
  std::int32_t step_at(fsdp::Nanos t, std::int64_t process) const;
  const ComputeUnits& compute_units() const { return compute_units_; }

 private:
  void link_parents();

  std::vector<Annotation> annotations_, steps_;
  std::vector<std::string> other_steps_;
  std::map<std::int64_t, std::vector<std::int32_t>> steps_of_;  // by process: into steps_, in time order
  std::size_t too_deep_ = 0;
  ComputeUnits compute_units_;
  std::vector<std::pair<std::uint32_t, std::size_t>>
      threads_;  // thread -> first of its annotations; one more at the end
};

// What an operation launched at t on `thread` is, by the annotations around.
struct Attribution {
  bool optimizer = false;
  bool fsdp_copy = false;      // a kernel here that is no collective is a copy of FSDP's
  bool library_range = false;  // inside a range of the communication library itself
  bool in_call = false;        // inside the host's call of a collective, or its backend's
  bool in_gather = false;      // inside FSDP's range of an all-gather or a reduction
  std::int32_t range = -1;     // the outermost of those, in_call's or in_gather's
  std::int32_t inner = -1;     // the innermost of those
  fsdp::UnitId unit = fsdp::kNoUnit;
  fsdp::Pass pass = fsdp::Pass::kNone;
  fsdp::SpanKind collective = fsdp::SpanKind::kOtherCollective;
};
Attribution attribution_at(const AnnotationIndex& index, std::uint32_t thread, fsdp::Nanos t);

// What the host issued, from annotations alone: for traces without device rows.
struct IssuedCollectives {
  fsdp::UnitId unit = fsdp::kNoUnit;
  fsdp::Pass pass = fsdp::Pass::kNone;
  std::int64_t all_gathers = 0, reduce_scatters = 0;
};
std::vector<IssuedCollectives> issued_collectives(const AnnotationIndex& index);

}  // namespace harness
