// ForeignTrace: one file's trace in neutral form. A reader fills it; finish() joins operations with their launch calls
// and with the annotations around those, sets impossible records aside, and orders everything in time. Memory is
// bounded: operations and launch calls beyond the budget go to temporary files; annotations and allocation calls stay.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "harness/analysis/annotations.h"
#include "harness/analysis/conventions.h"
#include "harness/analysis/device_trace.h"
#include "harness/analysis/foreign_partition.h"
#include "harness/trace/event_reader.h"

namespace harness {

enum class TraceSource : std::uint8_t { kKineto, kNsys, kShardscope };
std::string_view name_of(TraceSource s);

// Records that were set aside, by reason; they take no part in any number.
struct BadRecords {
  std::int64_t zero_times = 0, no_duration = 0, negative_duration = 0, not_a_number = 0, impossible_duration = 0;
  std::int64_t total() const {
    return zero_times + no_duration + negative_duration + not_a_number + impossible_duration;
  }
};

// No operation lasts longer: 11 days.
inline constexpr fsdp::Nanos kLongestOperation = 1'000'000'000'000'000;

struct TraceFacts {
  std::string path;
  TraceSource source = TraceSource::kKineto;
  std::optional<int> rank, world;  // as the file says
  std::string backend;             // "nccl", "gloo"; empty: unknown
  fsdp::Nanos base_time = 0;       // times are relative to it
  bool has_base_time = false;
  bool fractional_times = false;  // a time has a fraction of a microsecond
  std::uint64_t text_bytes = 0, events = 0;
  TextDefects defects;
  BadRecords bad;
  std::int64_t sync_rows = 0, collective_annotations = 0, optimizer_annotations = 0, fsdp_annotations = 0;
  std::vector<std::string> notes;  // sentences for the user
  bool partial = false;            // something of the trace is missing; a note says what
};

class ForeignTrace {
 public:
  explicit ForeignTrace(std::size_t memory_budget = 24 << 20);
  ~ForeignTrace();
  ForeignTrace(ForeignTrace&&) noexcept;
  ForeignTrace& operator=(ForeignTrace&&) noexcept;

  TraceFacts facts;

  // --- for readers ---
  std::uint32_t name(std::string_view text);  // kernel names; past 2^16 of them, one for the rest
  std::uint32_t thread(std::int64_t process, std::int64_t id);
  std::uint16_t row(std::int64_t process, std::int32_t device);
  // `op.name`, `.thread`, `.row` from the above. Class and attribution are found out by finish().
  void add_op(const DeviceOp& op);
  void add_launch(std::int64_t process, std::uint64_t correlation, std::uint32_t thread, fsdp::Nanos begin,
                  fsdp::Nanos end);
  void add_allocation(std::uint32_t thread, fsdp::Nanos begin, fsdp::Nanos end);
  // Text that means nothing here is dropped. end == kNoTime: it never ended. `collective_domain`: the range of a
  // communication library itself, which makes copies launched inside it communication.
  void add_annotation(std::string_view text, std::int64_t process, std::uint32_t thread, fsdp::Nanos begin,
                      fsdp::Nanos end, bool collective_domain = false);
  void finish();

  // --- after finish() ---
  const std::vector<DeviceRow>& rows() const { return rows_; }
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::string>& unit_names() const { return unit_names_; }
  const AnnotationIndex& annotations() const { return annotations_; }
  const std::vector<std::string>& step_labels() const { return step_labels_; }
  const AllocationCalls& allocations() const { return allocations_; }
  std::size_t operations() const;
  // The good operations, by row, then begin, stream, correlation, order in the file.
  void for_each_op(const std::function<void(const DeviceOp&)>& f);

 private:
  struct Sorters;
  void join();
  void classify(DeviceOp& op) const;
  void find_impossible();

  std::unique_ptr<Sorters> sorters_;
  std::vector<DeviceRow> rows_;
  std::vector<std::string> names_, unit_names_, annotation_names_, step_labels_;
  struct NameClass {
    bool communication = false, emulated = false;
    fsdp::SpanKind collective = fsdp::SpanKind::kOtherCollective;
  };
  std::vector<NameClass> name_classes_;
  std::unordered_map<std::string, std::uint32_t> name_ids_, module_ids_;
  std::unordered_map<std::string, fsdp::UnitId> unit_ids_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::uint32_t> thread_ids_;
  AnnotationIndex annotations_;
  std::map<std::uint32_t, std::vector<Interval>> allocation_calls_;
  AllocationCalls allocations_;
  std::vector<std::uint64_t> impossible_;  // `order` of operations set aside, sorted
  std::uint64_t order_ = 0;
  fsdp::Nanos latest_ = 0;
  std::pair<std::pair<std::int64_t, std::int64_t>, std::uint32_t> last_thread_{{-1, -1}, kNoThread};
};

}  // namespace harness
