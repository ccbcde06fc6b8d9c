#include "harness/trial/rank_watch.h"

#include <algorithm>

#include "fsdp/core/clock.h"
#include "harness/trial/messages.h"

namespace harness {
namespace {
constexpr fsdp::Nanos kMillisecond = 1'000'000;
// Beyond step_timeout. Transports and the device (rank_transports.h) come to their own conclusions before.
constexpr fsdp::Nanos kSlack = 2000 * kMillisecond, kSlackOfWaiting = 3000 * kMillisecond;
constexpr fsdp::Nanos kShortestPeriod = 100 * kMillisecond, kLongestPeriod = 15'000 * kMillisecond;
}  // namespace

RankWatch::RankWatch(RankGroup& ranks, fsdp::Nanos step_timeout)
    : ranks_(ranks),
      limit_(step_timeout),
      period_(std::clamp(step_timeout / 4, kShortestPeriod, kLongestPeriod)),
      asked_(fsdp::steady_now()),
      watched_(static_cast<std::size_t>(ranks.count())) {
  for (Watched& w : watched_) w.heard = w.active = asked_;
}

void RankWatch::look(int rank) {
  Watched& w = watched_.at(static_cast<std::size_t>(rank));
  const ProcessSight now = ranks_.sight(rank);
  if (now.ticks != w.state.sight.ticks) w.active = fsdp::steady_now();
  w.state.sight = now;
}

void RankWatch::ask() {
  asked_ = fsdp::steady_now();
  for (int rank = 0; rank < ranks_.count(); ++rank) {
    if (watched_[static_cast<std::size_t>(rank)].state.gone) continue;
    look(rank);
    ranks_.send(rank, to_json_line(RankCommand::kReport));
  }
}

void RankWatch::ask_when_due() {
  if (fsdp::steady_now() - asked_ >= period_) ask();
}

bool RankWatch::take(int rank, const std::string& line) {
  Watched& w = watched_.at(static_cast<std::size_t>(rank));
  w.heard = fsdp::steady_now();
  auto at = at_from_json(line);
  if (!at) return false;
  if (*at != w.state.at) w.active = w.heard;
  w.state.at = *std::move(at);
  return true;
}

void RankWatch::set_where(int rank, const std::string& where) {
  Watched& w = watched_.at(static_cast<std::size_t>(rank));
  if (where != w.state.where) w.active = fsdp::steady_now();
  w.state.where = where;
  look(rank);
}

void RankWatch::set_given(int rank, bool given) {
  Watched& w = watched_.at(static_cast<std::size_t>(rank));
  if (w.state.given != given) w.active = fsdp::steady_now();
  w.state.given = given;
}

bool RankWatch::all_answer() const {
  return std::all_of(watched_.begin(), watched_.end(),
                     [this](const Watched& w) { return w.state.gone || w.heard >= asked_; });
}

std::vector<int> RankWatch::silent() const {
  std::vector<int> silent;
  const fsdp::Nanos now = fsdp::steady_now();
  for (std::size_t r = 0; r < watched_.size(); ++r) {
    const Watched& w = watched_[r];
    const bool excused = w.state.waits() && w.heard >= asked_;
    if (!w.state.gone && !w.state.given && now - w.active > limit_ + (excused ? kSlackOfWaiting : kSlack))
      silent.push_back(static_cast<int>(r));
  }
  return silent;
}

std::vector<RankState> RankWatch::states() const {
  std::vector<RankState> states;
  for (const Watched& w : watched_) {
    states.push_back(w.state);
    states.back().answers = w.heard >= asked_;
  }
  return states;
}

}  // namespace harness
