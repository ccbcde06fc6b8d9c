#include "fsdp/schedule/ordering_checker.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <vector>

namespace fsdp {
namespace {

using Clock = std::array<std::uint64_t, kLaneCount>;

struct Access {
  std::size_t lane;
  std::uint64_t at;
  std::size_t index;
};

struct Buffer {
  std::optional<Access> write;
  std::vector<Access> reads;
};

class Checker {
 public:
  explicit Checker(const VerbLog& log) : log_(log) {}

  std::optional<OrderingFault> run() {
    for (index_ = 0; index_ < log_.size() && !fault_; ++index_) step(log_[index_]);
    return fault_;
  }

 private:
  static std::size_t at(Lane l) { return static_cast<std::size_t>(l); }

  // One more piece of work on the lane; it follows what the host had seen when it issued it.
  void issue(Lane lane) {
    ++host_clock();
    Clock& c = clocks_[at(lane)];
    for (std::size_t i = 0; i < c.size(); ++i) c[i] = std::max(c[i], clocks_[at(Lane::kHost)][i]);
    ++c[at(lane)];
  }
  std::uint64_t& host_clock() { return clocks_[at(Lane::kHost)][at(Lane::kHost)]; }

  bool follows(const Clock& clock, const Access& a) const { return clock[a.lane] >= a.at; }

  void report(const std::string& name, const Access& earlier, const char* what) {
    if (!fault_)
      fault_ = {index_, to_string(log_[index_]) + " " + what + " " + name + " while " + to_string(log_[earlier.index]) +
                            " (entry " + std::to_string(earlier.index) + ") may not be over"};
  }
  void read(Lane lane, const std::string& name) {
    Buffer& b = buffers_[name];
    const Clock& c = clocks_[at(lane)];
    if (b.write && !follows(c, *b.write)) report(name, *b.write, "reads");
    b.reads.push_back({at(lane), c[at(lane)], index_});
  }
  void write(Lane lane, const std::string& name) {
    Buffer& b = buffers_[name];
    const Clock& c = clocks_[at(lane)];
    if (b.write && !follows(c, *b.write)) report(name, *b.write, "overwrites");
    for (const Access& r : b.reads)
      if (!follows(c, r)) report(name, r, "overwrites");
    b.write = Access{at(lane), c[at(lane)], index_};
    b.reads.clear();
  }
  // The memory goes back when the clock's moment is reached: nothing may still be using it then.
  void release(const Clock& moment, const std::string& name) {
    Buffer& b = buffers_[name];
    if (b.write && !follows(moment, *b.write)) report(name, *b.write, "releases");
    for (const Access& r : b.reads)
      if (!follows(moment, r)) report(name, r, "releases");
  }

  std::string unsharded(UnitId u) { return place_[u]; }
  static std::string shard(UnitId u) { return "the shard of unit " + std::to_string(u); }
  static std::string gradient(UnitId u) { return "the gradient of unit " + std::to_string(u); }
  static std::string reduce_place(const VerbEntry& e) { return "reduce place " + std::to_string(e.slot); }

  void step(const VerbEntry& e) {
    switch (e.verb) {
      case Verb::kAcquireUnsharded:
        place_[e.unit] = e.slot >= 0 ? "unsharded place " + std::to_string(e.slot)
                                     : "the full parameters of unit " + std::to_string(e.unit);
        if (e.slot < 0) buffers_.erase(place_[e.unit]);  // fresh memory; its release was checked
        break;
      case Verb::kAllGather:
        issue(e.lane);
        read(e.lane, shard(e.unit));
        write(e.lane, unsharded(e.unit));
        units_[e.unit] = true;
        break;
      case Verb::kCopyOut:
      case Verb::kComputeBegin:
      case Verb::kComputeEnd:
        issue(e.lane);
        if (place_.contains(e.unit)) read(e.lane, unsharded(e.unit));
        break;
      case Verb::kReleaseUnsharded:
        release(events_[e.event], unsharded(e.unit));
        break;
      case Verb::kPack:
        issue(e.lane);
        if (e.slot >= 0) write(e.lane, reduce_place(e));
        break;
      case Verb::kReduceScatter:
      case Verb::kAllReduce:
        issue(e.lane);
        if (e.slot >= 0) read(e.lane, reduce_place(e));
        write(e.lane, gradient(e.unit));
        units_[e.unit] = true;
        break;
      case Verb::kReleaseReduce:
        release(clocks_[at(e.lane)], reduce_place(e));
        break;
      case Verb::kRecord:
        events_[e.event] = clocks_[at(e.lane)];
        break;
      case Verb::kWait: {
        Clock& c = clocks_[at(e.lane)];
        const Clock& w = events_[e.event];
        for (std::size_t i = 0; i < c.size(); ++i) c[i] = std::max(c[i], w[i]);
        break;
      }
      case Verb::kOptimizerBegin:
        issue(e.lane);
        for (const auto& [u, known] : units_) {
          read(e.lane, gradient(u));
          write(e.lane, shard(u));
        }
        break;
      case Verb::kOptimizerEnd:
        issue(e.lane);
        for (const auto& [u, known] : units_) write(e.lane, shard(u));
        break;
      case Verb::kReleaseGradient:
        release(clocks_[at(e.lane)], gradient(e.unit));
        break;
      case Verb::kCast:
        issue(e.lane);
        read(e.lane, shard(e.unit));
        write(e.lane, unsharded(e.unit));
        break;
      case Verb::kAccumulate:
        issue(e.lane);
        break;
      case Verb::kAcquireReduce:
        break;
    }
  }

  const VerbLog& log_;
  std::size_t index_ = 0;
  std::array<Clock, kLaneCount> clocks_{};
  std::unordered_map<std::uint64_t, Clock> events_;
  std::unordered_map<std::string, Buffer> buffers_;
  std::map<UnitId, std::string> place_;
  std::map<UnitId, bool> units_;
  std::optional<OrderingFault> fault_;
};

}  // namespace

std::optional<OrderingFault> find_ordering_fault(const VerbLog& log) { return Checker(log).run(); }

}  // namespace fsdp
