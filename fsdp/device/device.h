// Device: one world. Lanes are in-order queues of work; events order lanes against each other; now() is the world's
// clock. A rank has one Device and uses it from one thread, the host thread.
//
//   host      comm lanes are threads with a FIFO; the compute lane is the host thread itself, so waiting on it blocks
//   virtual   lanes are time cursors: start = max(host, lane free, waited events, channel free), end = start + cost
//   cuda      lanes are streams
//
// Knows no units' data, no policies. Errors of a lane (a failed collective) poison the lane and are thrown at the next
// wait of the host for it. Every wait of the host has a deadline and throws TimeoutError naming what it waited for.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "fsdp/core/span.h"
#include "fsdp/core/types.h"

namespace fsdp {

// A point in a lane's order. id 0: already reached.
struct Event {
  std::uint64_t id = 0;
  bool pending() const { return id != 0; }
};

// What a piece of work is, for spans, causes and checks.
struct WorkTag {
  SpanKind kind = SpanKind::kCompute;
  UnitId unit = kNoUnit;
  Pass pass = Pass::kNone;
  Bytes bytes = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual Nanos now() const = 0;

  // An event that is reached when all work issued to the lane so far is done.
  virtual Event record(Lane lane) = 0;
  // Work issued to the lane from now on starts after the event. On the host device's compute lane this blocks; the time
  // is recorded as a wait for the work behind the event, or as a memory wait if `reason` says so.
  virtual void wait(Lane lane, Event event, SpanKind reason = SpanKind::kWait) = 0;
  // Blocks the host until the event is reached.
  virtual void synchronize(Event event) = 0;

  // What the compute lane does from now on (until the next call): model work of a unit, copies, optimizer, or, with
  // kHostWork, nothing but the runtime's own bookkeeping. On the host device this is what cuts its time into spans.
  virtual void compute_context(WorkTag tag) = 0;
  virtual void host_context() = 0;  // the runtime's bookkeeping: no span

  virtual void begin_step(int step) = 0;
  virtual void end_step() = 0;

  // Spans are recorded only while on; take_spans() returns and clears what was recorded, ids and times as in Span.
  virtual void set_recording(bool on) = 0;
  virtual std::vector<Span> take_spans() = 0;
};

}  // namespace fsdp
