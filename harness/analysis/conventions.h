// The same trace by the definitions of other tools, so that their numbers can be explained.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/analysis/foreign_partition.h"

namespace harness {

enum class Convention : std::uint8_t { kExclusive, kHta, kTraceLens, kNsys };
std::string_view name_of(Convention c);
std::optional<Convention> convention_from(std::string_view name);

// TraceLens: memset is compute; exposed communication is outside compute, exposed memcpy outside both; parts add to
// span.
struct TraceLensTimes {
  fsdp::Nanos compute = 0, exposed_communication = 0, exposed_memcpy = 0, idle = 0, hidden_communication = 0, span = 0;
};
TraceLensTimes tracelens_times(const ForeignPartition& p);

// nsys-ai: kernels only, copies fall into idle.
struct NsysTimes {
  fsdp::Nanos compute_only = 0, communication_only = 0, overlap = 0, idle = 0, span = 0;
  std::optional<double> overlap_pct;  // absent without communication
};
NsysTimes nsys_times(const ForeignPartition& p);

// HolisticTraceAnalysis 0.5: classes by its name rules; begins rounded up and ends down to whole microseconds through
// double if any time of the file has a fraction; by default only operations launched before the last of several
// profiler steps began.
enum class HtaClass : std::uint8_t { kCommunication, kMemory, kCompute, kOther };
HtaClass hta_class(std::string_view name);

struct HtaOptions {
  bool round = true;
  bool include_last_step = false;
};
// In HTA's unit: microseconds; nanoseconds if `round` is off.
struct HtaResult {
  bool nanoseconds = false;
  std::int64_t operations = 0;
  fsdp::Nanos idle = 0, compute = 0, non_compute = 0, kernel_time = 0;
  fsdp::Nanos communication = 0, overlap = 0;
  std::optional<double> overlap_pct;
  // Exclusive totals by set of classes: bit 0 compute, bit 1 communication, bit 2 memory, as its kernel type table.
  std::array<fsdp::Nanos, 8> by_type{};
  struct StreamIdle {
    std::int32_t stream;
    fsdp::Nanos host_wait = 0, kernel_wait = 0, other = 0;
  };
  std::vector<StreamIdle> streams;  // by number
  bool last_step_dropped = false;
};

class HtaSweep {
 public:
  // `steps` of AnnotationIndex; `classes` by name index; `fractional`: a time in the file has a fraction of a us.
  HtaSweep(const HtaOptions& options, const std::vector<Annotation>& steps, const std::vector<HtaClass>& classes,
           bool fractional);
  void add(const DeviceOp& op);  // in order of begin
  HtaResult finish();

 private:
  struct Merged {
    bool any = false;
    std::int64_t begin = 0, end = 0, latest = 0, total = 0, first = 0;
    std::vector<Interval>* keep = nullptr;  // closed intervals go here until they can no longer meet another class's
    void add(std::int64_t b, std::int64_t e);
    void close();
  };
  struct Stream {
    bool any = false;
    std::int64_t previous_end = 0;
    HtaResult::StreamIdle idle;
  };
  std::int64_t up(fsdp::Nanos ns) const;
  std::int64_t down(fsdp::Nanos begin, fsdp::Nanos end) const;
  void settle(std::int64_t until);

  HtaOptions options_;
  const std::vector<HtaClass>& classes_;
  bool round_;
  fsdp::Nanos last_step_begin_ = kNoTime, last_step_end_ = kNoTime;
  bool filter_ = false;
  HtaResult out_;
  Merged all_;
  std::array<Merged, 3> by_class_;  // compute, communication, memory
  std::array<std::vector<Interval>, 3> closed_;
  static constexpr std::size_t kSettleAbove = 4096;  // intervals kept before they are counted
  std::size_t settle_above_ = kSettleAbove;
  std::map<std::int32_t, Stream> streams_;
};

}  // namespace harness
