// ForeignTrace: one file's trace in neutral form. A reader fills it; finish() joins operations with their launch calls
// and with the annotations around those, sets impossible records aside, and orders everything in time. Memory is
// bounded: operations and launch calls beyond the budget go to temporary files; annotations and allocation calls stay.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "harness/analysis/annotations.h"
#include "harness/analysis/conventions.h"
#include "harness/analysis/device_trace.h"
#include "harness/analysis/foreign_partition.h"
#include "harness/analysis/host_calls.h"
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

// Events or rows of a category or table that is not known.
struct UnknownEvents {
  std::string what;
  bool device = false;  // work of a device, as far as can be told
  std::int64_t count = 0;
  fsdp::Nanos ns = 0;  // the sum of their lengths
};

// One process that called the driver.
struct ProcessCalls {
  std::int64_t launches = 0;   // calls that launch kernels
  std::int64_t unmatched = 0;  // of those, without a kernel in the trace
  std::int64_t calls = 0, operations = 0, ranges = 0;
};

// Device work launched inside ranges of collectives none of which holds an operation that is known as one.
struct UnknownCollectives {
  std::int64_t ranges = 0, operations = 0;
  fsdp::Nanos ns = 0;
  fsdp::SpanKind kind = fsdp::SpanKind::kOtherCollective;  // of the first
};

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
  std::vector<UnknownEvents> unknown;
  std::map<std::int64_t, ProcessCalls> processes;
  std::set<std::int64_t> device_pids;  // of processes that had a device open, where the file says
  std::vector<std::string> notes;      // sentences for the user
  bool host_lanes = false;             // no device: operators and Gloo's ranges stand for it (host_lanes.h)
  bool several_processes = false;      // of one Kineto file: ranks that were merged
  bool partial_annotations = false;
  bool partial = false;  // something of the trace is missing; a note says what
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
  // `call`: its name, as far as it matters.
  void add_call(std::string_view call, std::int64_t process, std::uint64_t correlation, std::uint32_t thread,
                fsdp::Nanos begin, fsdp::Nanos end);
  void add_unknown(std::string_view what, bool device, fsdp::Nanos ns, std::int64_t count = 1);
  // Text that means nothing here is dropped. end == kNoTime: it never ended. `collective_domain`: the range of a
  // communication library itself, which makes copies launched inside it communication.
  void add_annotation(std::string_view text, std::int64_t process, std::uint32_t thread, fsdp::Nanos begin,
                      fsdp::Nanos end, bool collective_domain = false);
  // Throws fsdp::ConfigError if several processes share the file and which did what cannot be told.
  void finish();

  // --- after finish() ---
  const std::vector<DeviceRow>& rows() const { return rows_; }
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::string>& unit_names() const { return unit_names_; }
  const AnnotationIndex& annotations() const { return annotations_; }
  const std::vector<std::string>& step_labels() const { return step_labels_; }
  const AllocationCalls& allocations() const { return allocations_; }
  const HostCalls& calls() const { return calls_; }
  const std::vector<UnknownCollectives>& unknown_collectives() const { return unknown_collectives_; }  // by row
  std::size_t operations() const;
  // The good operations, by row, then begin, stream, correlation, order in the file.
  void for_each_op(const std::function<void(const DeviceOp&)>& f);

 private:
  struct Sorters;
  struct CallKind {
    bool allocates, synchronizes, kernel, graph;
  };
  CallKind call_kind(std::string_view call);
  std::uint32_t annotation_name(std::string_view text);
  void assign_processes();
  void assign_one(std::int64_t process);
  void assign_several();
  [[noreturn]] void refuse_mixture(const std::string& why) const;
  void move_to_process(DeviceOp& op, std::int64_t process);
  void join();
  void judge_collisions(std::int64_t collisions, std::int64_t launches);
  void classify(DeviceOp& op);
  void classify_copy(DeviceOp& op, const Attribution& at) const;
  void note_range(const DeviceOp& op, const Attribution& at);
  void sum_ranges();
  void sort_calls();
  void find_impossible();

  std::unique_ptr<Sorters> sorters_;
  std::vector<DeviceRow> rows_;
  std::map<std::pair<std::int64_t, std::int32_t>, std::uint16_t> row_ids_;
  std::vector<std::string> names_, unit_names_, annotation_names_, step_labels_;
  struct NameClass {
    CommunicationName communication = CommunicationName::kNo;
    bool emulated = false, between_devices = false;
    fsdp::SpanKind collective = fsdp::SpanKind::kOtherCollective;
  };
  std::vector<NameClass> name_classes_;
  std::unordered_map<std::string, std::uint32_t> name_ids_, annotation_ids_;
  std::unordered_map<std::string, fsdp::UnitId> unit_ids_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::uint32_t> thread_ids_;
  AnnotationIndex annotations_;
  std::map<std::uint32_t, std::vector<Interval>> allocation_calls_;
  AllocationCalls allocations_;
  std::size_t kept_calls_ = 0;
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view t) const { return std::hash<std::string_view>()(t); }
  };
  std::unordered_map<std::string, CallKind, TextHash, std::equal_to<>> call_kinds_;
  HostCalls calls_;
  struct Range {
    bool known = false;
    std::uint16_t row = 0;
    std::int64_t operations = 0;
    fsdp::Nanos ns = 0;
  };
  std::unordered_map<std::int32_t, Range> ranges_;  // of collectives, by annotation
  std::vector<UnknownCollectives> unknown_collectives_;
  std::vector<std::uint64_t> impossible_;  // `order` of operations set aside, sorted
  std::uint64_t order_ = 0;
  fsdp::Nanos latest_ = 0;
  std::pair<std::pair<std::int64_t, std::int64_t>, std::uint32_t> last_thread_{{-1, -1}, kNoThread};
  std::size_t last_row_ = 0;
  // Where rows were made before it was known whose they are: by row and process, the row that is meant.
  std::map<std::pair<std::uint16_t, std::int64_t>, std::uint16_t> moved_rows_;
  std::vector<std::optional<std::int64_t>> row_owners_;  // by row; none: each operation's own launch call says
};

}  // namespace harness
