// SpanIndex: one rank's spans, looked up by id, by time and by lane. What the partition asks of a trace.
#pragma once
#include <algorithm>
#include <unordered_map>
#include <vector>

#include "fsdp/core/span.h"

namespace harness {

class SpanIndex {
 public:
  // `spans` must outlive the index. Throws fsdp::Error if an id other than 0 repeats.
  explicit SpanIndex(const std::vector<fsdp::Span>& spans);

  const fsdp::Span* find(std::uint32_t id) const;  // null: not in the trace

  // The compute lane's first span (compute, optimizer or copy; of any length) that begins after t; null: none.
  const fsdp::Span* next_on_compute_lane(fsdp::Nanos t) const;

  // Of the collectives that begin at or after `begin` and end at or before `end`, the one that ends last.
  const fsdp::Span* last_collective_within(fsdp::Nanos begin, fsdp::Nanos end) const;

  // At t, another collective of c's communicator is in flight: one issued earlier that ends before c begins. Which
  // lanes share a communicator is seen from the trace: all, if no two collectives ever overlap; else each has its own.
  bool queued_behind(const fsdp::Span& c, fsdp::Nanos t, const std::vector<const fsdp::Span*>& active) const;

  bool one_communicator() const { return one_communicator_; }  // as above

  // begin - max(issued, communicator free, awaited spans other than the compute of another unit), at least 0; 0 if the
  // collective waits for no other unit's compute and its lane for no memory.
  fsdp::Nanos slot_delay(const fsdp::Span& c) const;

  // Calls f for each span that begins before `end` and ends at or after `begin`, and for each that begins later but was
  // issued in between (it still cuts the window), ordered by begin, then lane, then id. O(log n) a span.
  template <class F>
  void for_each_within(fsdp::Nanos begin, fsdp::Nanos end, F f) const {
    const auto after =
        std::partition_point(by_begin_.begin(), by_begin_.end(), [&](const auto* s) { return s->begin < end; });
    const auto limit = static_cast<std::size_t>(after - by_begin_.begin());
    for (std::size_t i = next_ending(0, begin); i < limit; i = next_ending(i + 1, begin)) f(*by_begin_[i]);
    for (const fsdp::Span* s : issued_before(begin, end)) f(*s);
  }

 private:
  std::unordered_map<std::uint32_t, const fsdp::Span*> by_id_;
  std::vector<const fsdp::Span*> by_begin_;
  // The first i >= from whose span ends at or after t; by_begin_.size() if there is none.
  std::size_t next_ending(std::size_t from, fsdp::Nanos t) const;
  // Spans issued in [begin, end) that begin at or after `end`, in order.
  std::vector<const fsdp::Span*> issued_before(fsdp::Nanos begin, fsdp::Nanos end) const;

  std::vector<fsdp::Nanos> latest_;  // a tree over by_begin_: node k holds the later end of 2k and 2k + 1
  std::size_t leaves_ = 1;           // of the tree; leaf i is node leaves_ + i
  std::vector<const fsdp::Span*> by_issue_;
  std::vector<const fsdp::Span*> compute_lane_;
  std::vector<const fsdp::Span*> collectives_;  // by end
  bool one_communicator_ = true;
};

}  // namespace harness
