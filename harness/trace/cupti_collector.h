// CuptiCollector: what the GPU of this process does, collected in process, with the unit and pass of every launch.
// Never fails a run: what goes wrong is a sentence, and the trace is partial or absent.
//
//   CuptiCollector cupti(*load_cupti(why));
//   if (auto why = cupti.start(); !why.empty()) -> not collected
//   steps; cupti.tags() is the device's RangeSink; cupti.sample_clock() once a step
//   (device synchronized) CuptiTrace trace = cupti.stop(rank);
//
// One collector collects at a time in a process, from start() to stop(), both on the same thread; tags from any thread.
// CUPTI calls for buffers on the thread that launches: they come from a pool that is touched beforehand. Records are
// decoded in stop(). A forked child does nothing. cuptiFinalize is never called, and nothing of CUPTI in a destructor.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "fsdp/device/ranges.h"
#include "harness/trace/cupti_library.h"
#include "harness/trace/cupti_spans.h"

namespace harness {

class CuptiCollector {
 public:
  struct Options {
    std::size_t buffer_bytes = std::size_t{4} << 20;  // one holds about 14,000 launches
    std::size_t ready_buffers = 8;                    // made beforehand
    std::size_t most_buffers = 256;                   // beyond it records are lost, and counted
  };

  explicit CuptiCollector(const CuptiLibrary& library);
  CuptiCollector(const CuptiLibrary& library, const Options& options);
  ~CuptiCollector();  // a collector that was not stopped drops what it has
  CuptiCollector(const CuptiCollector&) = delete;
  CuptiCollector& operator=(const CuptiCollector&) = delete;

  // Empty: collecting. Else why not, in a sentence; then nothing is left enabled, and it may be tried again.
  std::string start();
  bool collecting() const;

  // Reads both clocks; keeps the narrowest of five readings.
  void sample_clock();
  // Names the launches of the thread that pushes. Wraps `next`, which may be null, so that one range serves both.
  fsdp::RangeSink& tags(fsdp::RangeSink* next = nullptr);

  // The work whose trace is wanted is done (the device is synchronized). Empty trace when it was not collecting.
  CuptiTrace stop(int rank);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace harness
