#include "harness/analysis/host_calls.h"

#include <algorithm>

namespace harness {

using fsdp::Nanos;

const std::vector<Nanos>* HostCalls::unmatched_on(std::uint32_t thread) const {
  const auto it = unmatched.find(thread);
  return it == unmatched.end() ? nullptr : &it->second;
}

void BlockedHost::gather(const DeviceOp& op) {
  if (calls_ == nullptr || calls_->blocking.empty() || op.launch_begin == kNoTime) return;
  Thread& t = threads_[op.thread];
  if (t.first_gather == kNoTime) t.first_gather = op.launch_begin;
  t.first_gather = std::min(t.first_gather, op.launch_begin);
  t.last_gather = std::max(t.last_gather, op.launch_begin);
}

void BlockedHost::charge(std::uint32_t thread, Nanos since, Nanos begin, Nanos end, bool exposed) {
  if (calls_ == nullptr) return;
  const auto found = calls_->blocking.find(thread);
  if (found == calls_->blocking.end()) return;
  const std::vector<BlockingCall>& all = found->second;
  auto it = std::partition_point(all.begin(), all.end(), [&](const BlockingCall& c) { return c.end <= begin; });
  for (; it != all.end() && it->begin < end; ++it) {
    if (it->begin < since) continue;
    Charge& c = threads_[thread].charges[static_cast<std::size_t>(it - all.begin())];
    (exposed ? c.exposed : c.gap) += std::min(it->end, end) - std::max(it->begin, begin);
  }
}

std::vector<HostSync> BlockedHost::finish() const {
  std::map<std::uint32_t, HostSync> by_name;
  for (const auto& [thread, t] : threads_) {
    for (const auto& [i, charge] : t.charges) {
      const BlockingCall& call = calls_->blocking.at(thread)[i];
      const bool between = t.first_gather != kNoTime && t.first_gather < call.begin && call.end <= t.last_gather;
      if (!between) continue;
      HostSync& s = by_name[call.name];
      s.name = call.name;
      ++s.calls;
      s.exposed_ns += charge.exposed;
      s.gap_ns += charge.gap;
    }
  }
  std::vector<HostSync> out;
  for (const auto& [name, s] : by_name) out.push_back(s);
  std::stable_sort(out.begin(), out.end(), [](const HostSync& a, const HostSync& b) {
    return a.exposed_ns + a.gap_ns > b.exposed_ns + b.gap_ns;
  });
  return out;
}

}  // namespace harness
