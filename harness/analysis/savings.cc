#include "harness/analysis/savings.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "harness/analysis/span_index.h"

namespace harness {

using fsdp::Lane;
using fsdp::Nanos;
using fsdp::Span;
using fsdp::SpanKind;

namespace {

bool same(const Saving& a, const Saving& b) {
  return a.unit == b.unit && a.pass == b.pass && a.collective == b.collective;
}

// One step as a graph of what each span had to wait for.
class Replay {
 public:
  Replay(const SpanIndex& index, const StepPartition& step) : step_(step) {
    index.for_each_within(step.begin, step.end, [&](const Span& s) {
      const bool place = s.kind == SpanKind::kMemoryWait && s.lane != Lane::kHost;  // the span behind it says why
      if (s.kind != SpanKind::kStep && !place && s.begin < step.end && s.end > step.begin) nodes_.push_back({&s});
    });
    std::stable_sort(nodes_.begin(), nodes_.end(), [](const Node& a, const Node& b) {
      return std::tuple(a.span->begin, a.span->end, a.span->id) < std::tuple(b.span->begin, b.span->end, b.span->id);
    });
    link(index.one_communicator());
    find_synchronous();
    for (Node& n : nodes_) n.unexplained = n.span->begin - begin_of(n, nullptr, &Node::old_end, n.span->issued);
  }

  // Length of the step without the waits for the group's collectives.
  Nanos length_without(const Saving& group) {
    shifts_.clear();
    Nanos last_old = step_.begin, last_new = step_.begin;
    for (Node& n : nodes_) {
      play(n, group);
      if (n.span->end > step_.end) continue;
      last_old = std::max(last_old, n.span->end);
      if (!in_group(*n.span, group)) last_new = std::max(last_new, n.end);
    }
    return last_new + (step_.end - last_old) - step_.begin;
  }

 private:
  struct Node {
    const Span* span;
    std::vector<std::size_t> after = {};   // in order: of its lane, of its communicator
    std::vector<std::size_t> awaits = {};  // by its events
    Nanos unexplained = 0;                 // what it began later than all that it is known to wait for
    bool holds_host = false;
    Nanos end = 0;  // as played
    Nanos old_end() const { return span->end; }
    Nanos new_end() const { return end; }
  };

  static bool in_group(const Span& s, const Saving& g) {
    return is_collective(s.kind) && s.kind == g.collective && s.unit == g.unit && s.pass == g.pass;
  }
  static bool host_wait(const Span& s) {
    return s.lane == Lane::kHost && (s.kind == SpanKind::kWait || s.kind == SpanKind::kMemoryWait);
  }

  void link(bool one_communicator) {
    std::unordered_map<std::uint32_t, std::size_t> by_id;
    std::vector<std::size_t> last_of_lane(fsdp::kLaneCount, nodes_.size());
    std::size_t last_collective = nodes_.size();
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      Node& n = nodes_[i];
      const Span& s = *n.span;
      auto follow = [&](std::size_t before) {
        if (before < nodes_.size() && nodes_[before].span->end <= s.begin) n.after.push_back(before);
      };
      std::size_t& lane = last_of_lane[static_cast<std::size_t>(s.lane)];
      follow(lane);
      lane = i;
      if (is_collective(s.kind) && one_communicator) {
        follow(last_collective);
        last_collective = i;
      }
      for (const std::uint32_t id : s.waits) {
        // A host's wait ends with what it waits for, anything else begins after it.
        const auto it = by_id.find(id);
        if (it != by_id.end() && nodes_[it->second].span->end <= (host_wait(s) ? s.end : s.begin)) {
          n.awaits.push_back(it->second);
        }
      }
      by_id.emplace(s.id, i);
    }
  }

  // A compute-lane span that its issuing thread ran itself: nothing was issued while it ran.
  void find_synchronous() {
    std::vector<Nanos> host;
    for (const Node& n : nodes_) host.push_back(n.span->lane == Lane::kHost ? n.span->begin : n.span->issued);
    std::sort(host.begin(), host.end());
    for (Node& n : nodes_) {
      const Span& s = *n.span;
      const bool idle =
          std::upper_bound(host.begin(), host.end(), s.begin) == std::lower_bound(host.begin(), host.end(), s.end);
      n.holds_host = host_wait(s) || (s.lane == Lane::kCompute && s.issued == s.begin && idle);
    }
  }

  // The latest of what the span begins after; for a host's wait, without what it waits for.
  template <class End>
  Nanos begin_of(const Node& n, const Saving* without, End end, Nanos issued) const {
    Nanos t = issued;
    for (const std::size_t i : n.after) t = std::max(t, (nodes_[i].*end)());
    return host_wait(*n.span) ? t : std::max(t, awaited(n, without, end));
  }

  template <class End>
  Nanos awaited(const Node& n, const Saving* without, End end) const {
    const bool may_drop = n.span->lane == Lane::kCompute || n.span->kind == SpanKind::kWait;
    Nanos t = step_.begin;
    for (const std::size_t i : n.awaits) {
      if (without == nullptr || !may_drop || !in_group(*nodes_[i].span, *without)) t = std::max(t, (nodes_[i].*end)());
    }
    return t;
  }

  void play(Node& n, const Saving& group) {
    const Span& s = *n.span;
    if (s.begin < step_.begin) {
      n.end = s.end;
      return;
    }
    const Nanos begin = begin_of(n, &group, &Node::new_end, s.issued - shift_at(s.issued)) + n.unexplained;
    if (host_wait(s)) {
      const Nanos rest = s.end - std::max(s.begin, awaited(n, nullptr, &Node::old_end));
      n.end = std::max(begin, awaited(n, &group, &Node::new_end)) + rest;
    } else {
      n.end = begin + (s.end - s.begin);
    }
    if (n.holds_host) shifts_.emplace_back(s.end, s.end - n.end);
  }

  // How much earlier the host is than it was at `t`.
  Nanos shift_at(Nanos t) const {
    const auto it = std::partition_point(shifts_.begin(), shifts_.end(), [&](const auto& x) { return x.first <= t; });
    return it == shifts_.begin() ? 0 : std::prev(it)->second;
  }

  const StepPartition& step_;
  std::vector<Node> nodes_;
  std::vector<std::pair<Nanos, Nanos>> shifts_;  // from when on, by how much; in time order
};

}  // namespace

void add_saving(RowIndex& index, std::vector<Saving>& all, int list, const Saving& s) {
  Saving& row = index.row(
      all, {list, s.unit, 0, s.pass, s.collective}, [&](const Saving& x) { return same(x, s); },
      [&] {
        return Saving{s.unit, s.pass, s.collective};
      });
  row.exposed_ns += s.exposed_ns;
  row.saved_ns += s.saved_ns;
}

void sort_savings(std::vector<Saving>& all) {
  std::sort(all.begin(), all.end(), [](const Saving& a, const Saving& b) {
    return std::tuple(-a.saved_ns, -a.exposed_ns, a.unit, a.pass, a.collective) <
           std::tuple(-b.saved_ns, -b.exposed_ns, b.unit, b.pass, b.collective);
  });
}

std::vector<Saving> savings_of(const std::vector<Span>& spans, const StepPartition& step) {
  return savings_of(SpanIndex(spans), step, spans.size());
}

std::vector<Saving> savings_of(const SpanIndex& spans, const StepPartition& step, std::size_t most) {
  std::vector<Saving> out;
  RowIndex index;
  for (const CollectiveDetail& c : step.collectives) {
    if (c.exposed > 0) add_saving(index, out, 0, {c.unit, c.pass, c.kind, c.exposed, 0});
  }
  if (out.empty()) return out;
  if (out.size() > most) {
    sort_savings(out);
    out.resize(most);
  }
  Replay replay(spans, step);
  for (Saving& s : out) {
    s.saved_ns = std::clamp(step.end - step.begin - replay.length_without(s), Nanos{0}, s.exposed_ns);
  }
  sort_savings(out);
  return out;
}

}  // namespace harness
