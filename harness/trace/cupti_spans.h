// From CUPTI's records to spans: joins operations with the tags and the calls of their launches. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/core/span.h"
#include "harness/trace/cupti_clock.h"
#include "harness/trace/cupti_records.h"
#include "harness/trace/cupti_tag.h"

namespace harness {

// What the profiler itself cost: its command buffer was full, modules were loaded, buffers were flushed.
struct CuptiTrace {
  std::vector<fsdp::Span> spans;  // operations of the device, by begin; ids from 1 in order of issue
  std::vector<std::pair<fsdp::Nanos, fsdp::Nanos>> overheads;  // intervals in which times are not to be trusted
  std::uint64_t untagged = 0;                                  // operations that no tag names: compute of no unit
  std::uint64_t unlaunched = 0;  // operations whose launch call is not in the records: issued when they began
  std::uint64_t early = 0;       // operations that begin before their launch call began, as clocks have it
  fsdp::Nanos clock_error = 0;   // bound of the error of the times above
  fsdp::Nanos clock_drift = 0;   // ClockMap::drift()
  CuptiLosses losses;
  std::vector<std::string> notes;  // sentences for the user
};

// A tag decides the kind and the lane; a kernel without one is a collective if its name says so, else compute.
// Operations of one tag are spans of their own (a collective may be several kernels).
CuptiTrace spans_of_cupti(const CuptiRecords& records, const SizeTable& sizes, const ClockMap& clock, int rank);

}  // namespace harness
