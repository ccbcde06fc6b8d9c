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

  // Calls f for each span that begins before `end` and ends (or begins, or was issued) at or after `begin`, ordered by
  // begin, then lane, then id.
  template <class F>
  void for_each_within(fsdp::Nanos begin, fsdp::Nanos end, F f) const {
    auto it = std::partition_point(latest_end_.begin(), latest_end_.end(), [&](fsdp::Nanos e) { return e < begin; });
    for (std::size_t i = it - latest_end_.begin(); i < by_begin_.size(); ++i) {
      // A span issued inside the window that begins behind it still cuts the window.
      if (by_begin_[i]->begin >= end && earliest_issue_[i] >= end) break;
      if (by_begin_[i]->end >= begin) f(*by_begin_[i]);
    }
  }

 private:
  std::unordered_map<std::uint32_t, const fsdp::Span*> by_id_;
  std::vector<const fsdp::Span*> by_begin_;
  std::vector<fsdp::Nanos> latest_end_;      // of by_begin_[0..i]
  std::vector<fsdp::Nanos> earliest_issue_;  // of by_begin_[i..]
  std::vector<const fsdp::Span*> compute_lane_;
  std::vector<const fsdp::Span*> collectives_;  // by end
  bool one_communicator_ = true;
};

}  // namespace harness
