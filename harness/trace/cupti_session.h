// CUPTI beside a device's own spans: collects while steps are traced, and holds what it saw against the times that the
// device took from its events. Asked for with SHARDSCOPE_CUPTI=1 (or the path of a libcupti). The device's spans stay
// as they are; the outcome is fields of the row and warnings.
//
//   machine.cupti.operations               what the GPU did in the traced steps: kernels, copies, sets
//   machine.cupti.clock_error_ns           bound of the error of CUPTI's times on our clock
//   machine.cupti.clock_drift_ns           by how much CUPTI's clock moved against ours while steps were traced; 0:
//                                          none that shows
//   machine.cupti.collectives_to_events    time of collectives by CUPTI's records over that of the events: 1 when both
//                                          agree
//   machine.cupti.overhead_ns              in which the profiler itself held things up
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/trace/cupti_collector.h"

namespace harness {

struct CuptiReport {
  std::map<std::string, std::string> fields;
  std::vector<std::string> warnings;
};
// Pure. Collectives are the same when step, unit, pass and kind are; of several records the time from first begin to
// last end.
CuptiReport report_cupti(const CuptiTrace& trace, const std::vector<fsdp::Span>& device_spans);

class CuptiSession {
 public:
  // Null: not asked for. `variable` gives an environment variable or null.
  static std::unique_ptr<CuptiSession> wanted(const std::function<const char*(const char*)>& variable);

  // For the device, instead of `next`, which is told as well and may be null.
  fsdp::RangeSink* tags(fsdp::RangeSink* next);
  void begin();  // of the traced steps
  void step();   // after each
  // The device is synchronized. `device_spans`: its own, of the same steps.
  CuptiReport finish(int rank, const std::vector<fsdp::Span>& device_spans);

 private:
  CuptiSession() = default;
  std::unique_ptr<CuptiCollector> collector_;
  std::string why_not_;
};

}  // namespace harness
