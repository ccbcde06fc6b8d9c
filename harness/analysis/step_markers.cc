#include "harness/analysis/step_markers.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <tuple>

#include "harness/analysis/annotations.h"

namespace harness {
namespace {

using fsdp::Nanos;

constexpr std::string_view kProfilerStep = "ProfilerStep#";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Markers of one kind on one thread, in time order, without doubles.
struct Group {
  std::vector<std::size_t> markers;
  std::size_t doubles = 0;
  Nanos covered = 0, open_until = kNoTime;
  bool numbered = true;
};
using Groups = std::map<std::pair<std::string, std::uint32_t>, Group>;  // by kind and thread

Nanos end_of(const Annotation& a, Nanos end) { return a.end == kNoTime ? std::max(a.begin, end) : a.end; }

void take(Group& g, const Annotation& a, std::size_t i, Nanos end, bool numbered) {
  const Nanos until = end_of(a, end);
  if (!g.markers.empty() && a.begin < g.open_until && until <= g.open_until) {
    ++g.doubles;
    return;
  }
  g.covered += until - std::max(a.begin, g.markers.empty() ? a.begin : g.open_until);
  g.open_until = std::max(until, g.markers.empty() ? until : g.open_until);
  g.markers.push_back(i);
  g.numbered &= numbered;
}

Groups::const_iterator chosen_of(const Groups& groups) {
  Nanos widest = 0;
  for (const auto& [key, g] : groups) widest = std::max(widest, g.covered);
  auto rank = [&](Groups::const_iterator x) {
    const Group& g = x->second;
    const bool wide = g.covered >= widest - g.covered;
    return std::tuple(x->first.first == kProfilerStep, wide, wide && g.numbered, g.covered);
  };
  auto best = groups.begin();
  for (auto it = groups.begin(); it != groups.end(); ++it) {
    if (rank(it) > rank(best)) best = it;
  }
  return best;
}

// Steps of the chosen kind may go on on another thread: where they do not overlap the chosen ones they count too.
std::vector<std::size_t> with_other_threads(const Groups& groups, Groups::const_iterator chosen,
                                            const std::vector<Annotation>& annotations, Nanos end) {
  std::vector<std::size_t> kept = chosen->second.markers, all = kept;
  std::size_t k = 0;
  for (auto it = groups.lower_bound({chosen->first.first, 0}); it != groups.end(); ++it, k = 0) {
    if (it->first.first != chosen->first.first) break;
    if (it == chosen) continue;
    for (const std::size_t i : it->second.markers) {
      const Annotation& a = annotations[i];
      while (k < kept.size() && end_of(annotations[kept[k]], end) <= a.begin) ++k;
      if (k == kept.size() || annotations[kept[k]].begin >= end_of(a, end)) all.push_back(i);
    }
  }
  return all;
}

std::string sentence(const Groups& groups, Groups::const_iterator chosen, std::size_t kept) {
  std::map<std::string, std::size_t> others;
  for (const auto& [key, g] : groups) others[key.first] += g.markers.size() + g.doubles;
  others[chosen->first.first] -= kept;
  std::string list;
  for (const auto& [kind, n] : others) {
    if (n == 0) continue;
    list += (list.empty() ? "" : ", ") + std::to_string(n) + " of \"" + kind + "\"" +
            (kind == chosen->first.first ? " (doubled)" : "");
  }
  if (list.empty()) return "";
  return "steps are the " + std::to_string(kept) + " ranges \"" + chosen->first.first +
         "\"; other ranges that look like steps are not taken as such: " + list;
}

}  // namespace

std::string step_kind(std::string_view t) {
  if (t.starts_with(kProfilerStep)) return std::string(kProfilerStep);
  std::string low(t.substr(0, 64));
  std::transform(low.begin(), low.end(), low.begin(), [](unsigned char c) { return std::tolower(c); });
  std::string_view rest = low;
  std::string kind;
  for (std::string_view before : {"train", "training", "global"}) {
    if (!rest.starts_with(before) || rest.size() <= before.size()) continue;
    if (rest[before.size()] != '_' && rest[before.size()] != ' ') continue;
    rest.remove_prefix(before.size() + 1);
    kind = std::string(before) + " ";
    break;
  }
  for (std::string_view word : {"step", "iteration", "iter"}) {
    if (!rest.starts_with(word)) continue;
    rest = t.substr(low.size() - rest.size() + word.size());
    const std::size_t digits = rest.find_first_not_of(" _#:=");
    const bool number =
        digits != std::string_view::npos && std::all_of(rest.begin() + static_cast<long>(digits), rest.end(), is_digit);
    return rest.empty() || number ? kind + std::string(word) : std::string();
  }
  return {};
}

void choose_steps(std::vector<Annotation>& annotations, const std::vector<std::string>& names, Nanos end,
                  std::vector<std::string>& others) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < annotations.size(); ++i) {
    if (annotations[i].kind == AnnotationKind::kStep) order.push_back(i);
  }
  // Of two that begin together the longer is the outer one.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Annotation &x = annotations[a], &y = annotations[b];
    return std::tuple(x.begin, -end_of(x, end)) < std::tuple(y.begin, -end_of(y, end));
  });
  std::map<std::int64_t, Groups> processes;
  for (const std::size_t i : order) {
    const Annotation& a = annotations[i];
    const std::string& text = names[a.name];
    take(processes[a.process][{step_kind(text), a.thread}], a, i, end, !text.empty() && is_digit(text.back()));
  }
  for (const std::size_t i : order) annotations[i].kind = AnnotationKind::kOther;
  for (const auto& [process, groups] : processes) {
    const auto chosen = chosen_of(groups);
    const std::vector<std::size_t> kept = with_other_threads(groups, chosen, annotations, end);
    for (const std::size_t i : kept) annotations[i].kind = AnnotationKind::kStep;
    if (std::string s = sentence(groups, chosen, kept.size()); !s.empty()) others.push_back(std::move(s));
  }
}

}  // namespace harness
