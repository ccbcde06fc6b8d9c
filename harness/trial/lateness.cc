#include "harness/trial/lateness.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fsdp/core/errors.h"
#include "harness/trial/line_numbers.h"

namespace harness {
namespace {
using Json = nlohmann::json;

std::uint64_t calls_of(const RankState& rank, const std::string& communicator) {
  for (const CommunicatorState& c : rank.at)
    if (c.name == communicator) return c.calls;
  return 0;
}

std::vector<int> members_from(const Json& list) {
  std::vector<int> members;
  for (const Json& j : list) members.push_back(static_cast<int>(whole_number(j, "trial", "a member", {0, kMostInt})));
  return members;
}
}  // namespace

std::string at_line(const std::vector<CommunicatorState>& states) {
  Json all = Json::array();
  for (const CommunicatorState& c : states) all.push_back({c.name, c.members, c.calls, c.waiting});
  return Json{{"at", std::move(all)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<std::vector<CommunicatorState>> at_from_json(const std::string& line) {
  if (line.rfind("{\"at\":", 0) != 0) return std::nullopt;
  try {
    std::vector<CommunicatorState> states;
    const Json document = Json::parse(line);
    for (const Json& j : document.at("at"))
      states.push_back({j.at(0), members_from(j.at(1)),
                        static_cast<std::uint64_t>(whole_number(j.at(2), "trial", "calls", {0, std::int64_t{1} << 53})),
                        j.at(3)});
    return states;
  } catch (const Json::exception& e) {
    throw fsdp::CommError("[trial] a rank's account of its communicators cannot be read (" + std::string(e.what()) +
                          "): " + line.substr(0, 200));
  }
}

bool RankState::waits() const {
  return std::any_of(at.begin(), at.end(), [](const CommunicatorState& c) { return c.waiting; });
}

std::vector<int> late_ranks(const std::vector<RankState>& ranks) {
  const auto count = static_cast<int>(ranks.size());
  std::vector<int> silent;
  std::vector<char> awaited(ranks.size(), 0);
  for (int r = 0; r < count; ++r) {
    const RankState& rank = ranks[static_cast<std::size_t>(r)];
    if (!rank.gone && !rank.answers) silent.push_back(r);
    for (const CommunicatorState& c : rank.at) {
      if (!c.waiting) continue;
      for (const int m : c.members)
        if (m >= 0 && m < count && calls_of(ranks[static_cast<std::size_t>(m)], c.name) < c.calls)
          awaited[static_cast<std::size_t>(m)] = 1;
    }
  }
  if (!silent.empty()) return silent;
  std::vector<int> late;
  for (int r = 0; r < count; ++r) {
    const RankState& rank = ranks[static_cast<std::size_t>(r)];
    if (awaited[static_cast<std::size_t>(r)] != 0 && !rank.gone && !rank.waits()) late.push_back(r);
  }
  return late;
}

std::string lateness_text(const std::vector<RankState>& ranks, const std::vector<int>& late, Lateness how,
                          const std::string& doing) {
  std::string text;
  for (const int r : late) {
    const RankState& rank = ranks[static_cast<std::size_t>(r)];
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(r);
    if (rank.answers) {
      text += (how == Lateness::kAwaited ? " has not come where others wait for it " : " does nothing ") + doing;
    } else if (rank.sight.stopped) {
      text += " does not answer " + doing + ": its process is stopped (SIGSTOP)";
    } else {
      text += " does not answer " + doing + ": its process is stopped, or gets no processor";
    }
    if (!rank.where.empty()) text += " (" + rank.where + ")";
  }
  return text;
}

}  // namespace harness
