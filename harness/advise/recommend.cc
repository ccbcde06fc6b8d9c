#include "harness/advise/recommend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "fsdp/core/errors.h"
#include "fsdp/core/memory_meter.h"
#include "harness/advise/decision_error.h"
#include "harness/advise/effective_case.h"
#include "harness/advise/quality.h"
#include "harness/sweep/quantities.h"
#include "harness/sweep/text.h"
#include "harness/workload/model_settings.h"

namespace harness {
namespace {

constexpr double kSame = 0.02;         // costs closer than this, with intervals that meet, are equal: less memory wins
constexpr double kMemorySlack = 0.05;  // of the limit, or of the least
constexpr double kObserverLimit = 1.05;
constexpr std::size_t kListed = 2, kMostKeys = 100, kMostNames = 8;

std::string setting(const CaseRecord& c, const std::string& name) {
  for (const auto& [key, value] : c.settings)
    if (key == name) return value;
  return "";
}

// What must be equal for two cases to be choices for the same job.
std::string workload_key(const CaseRecord& c) {
  std::string key;
  for (const auto& [name, value] : with_defaults(c.settings))
    if (has_role(name, Role::kWork)) key += name + "=" + value + "\n";
  return key;
}

// The same for people. Beside the machine, settings whose values differ between the cases are said.
std::string workload_of(const std::vector<CaseRecord>& cases, const CaseRecord& c) {
  std::string set = setting(c, "set"), out = model_name(setting(c, "model"));
  if (!set.empty() && set != "none") out += " (" + set + ")";
  out += ", world " + setting(c, "world") + ", " + setting(c, "device");
  for (const SettingRow& row : setting_table()) {
    if (row.role != Role::kWork || row.name == "model" || row.name == "set" || row.name == "world" ||
        row.name == "device")
      continue;
    const std::string value = setting(c, row.name);
    const bool machine = row.only || row.name == "wire";
    const bool standard = value.empty() || value == row.standard;
    const bool differs =
        std::any_of(cases.begin(), cases.end(), [&](const CaseRecord& o) { return setting(o, row.name) != value; });
    if (machine ? !standard : differs) out += fmt::format(", {} {}", row.name, standard ? row.standard : value);
  }
  return out;
}

std::string work_key(const CaseRecord& c) {
  return setting(c, "batch") + "/" + setting(c, "seq") + "/" + setting(c, "accumulate");
}

Contender contender(const std::vector<CaseRecord>& cases, std::size_t i, bool per_token) {
  const CaseRecord& c = cases[i];
  const double tokens = per_token && c.tokens_per_s ? *c.tokens_per_s * static_cast<double>(*c.step_ns) / 1e9 : 1.0;
  const auto scaled = [&](std::optional<fsdp::Nanos> ns) {
    return static_cast<double>(ns.value_or(*c.step_ns)) / tokens;
  };
  return {i, scaled(c.step_ns), scaled(c.step_ci_low_ns), scaled(c.step_ci_high_ns), c.peak_bytes.value_or(0), ""};
}

bool intervals_meet(const Contender& a, const Contender& b) { return a.low <= b.high && b.low <= a.high; }

std::string words(PartitionClass c) {
  std::string s(name_of(c));
  std::replace(s.begin(), s.end(), '_', ' ');
  return s;
}

std::string more_memory(const Contender& a, const Contender& b) {
  if (a.peak == 0 || b.peak == 0 || a.peak == b.peak) return "";
  return fmt::format("{} {} memory", format_bytes(std::abs(a.peak - b.peak)), a.peak > b.peak ? "more" : "less");
}

class Advisor {
 public:
  Advisor(const std::vector<CaseRecord>& cases, std::vector<std::size_t> members, const RecommendOptions& options)
      : cases_(cases), members_(std::move(members)), options_(options) {}

  Recommendation advise() {
    r_.workload = workload_of(cases_, cases_[members_.front()]);
    std::set<std::string> works;
    for (const std::size_t i : members_) works.insert(work_key(cases_[i]));
    per_token_ = works.size() > 1;
    r_.unit = per_token_ ? "token" : "step";
    r_.limit = limit();
    sort_out();
    find_pareto();
    choose();
    if (r_.best) explain();
    tell_equal_cases();
    return std::move(r_);
  }

 private:
  // The user's, or the smallest budget that the cases ran under.
  std::optional<fsdp::Bytes> limit() const {
    if (options_.memory) return options_.memory;
    std::optional<fsdp::Bytes> least;
    for (const std::size_t i : members_) {
      const std::string text = setting(cases_[i], "memory_budget");
      if (text.empty() || text == "none") continue;
      const fsdp::Bytes b = parse_bytes(text);
      if (!least || b < *least) least = b;
    }
    return least;
  }

  void sort_out() {
    int bad = 0;
    for (const std::size_t i : members_) {
      const CaseRecord& c = cases_[i];
      if (!measured(c.status) || !c.step_ns) {
        bad += c.status != Status::kOom && c.status != Status::kSkipped;
        continue;
      }
      Contender k = contender(cases_, i, per_token_);
      if (options_.single_modules) {
        try {
          if (fsdp1_obstacle(policy_of(settings_of(c)))) {
            ++not_single_;
            continue;
          }
        } catch (const fsdp::Error&) {  // a plan or model file that is gone: the snippet will say so
        }
      }
      const double free = static_cast<double>(r_.limit.value_or(0)) * (1 - options_.margin);
      if (r_.limit && k.peak > *r_.limit)
        k.why = fmt::format("needs {}, more than {}", format_bytes(k.peak), format_bytes(*r_.limit));
      else if (r_.limit && static_cast<double>(k.peak) > free)
        k.why = fmt::format("needs {}, which leaves less than the margin of {:.0f} % below {}", format_bytes(k.peak),
                            100 * options_.margin, format_bytes(*r_.limit));
      else if (c.status == Status::kNearOom && !options_.memory)
        k.why = "ran near the limit: " + c.reason;
      (k.why.empty() ? fitting_ : over_).push_back(k);
    }
    if (bad > 0)
      r_.warnings.push_back(fmt::format("{} cases failed for other reasons than memory and were left out", bad));
    if (not_single_ > 0)
      r_.warnings.push_back(
          fmt::format("{} cases hold several modules in a unit, which FSDP1 cannot, and were left out", not_single_));
    const auto by_cost = [](const Contender& a, const Contender& b) { return a.cost < b.cost; };
    std::stable_sort(fitting_.begin(), fitting_.end(), by_cost);
    std::stable_sort(over_.begin(), over_.end(), by_cost);
  }

  void find_pareto() {
    std::vector<Contender> all = fitting_;
    all.insert(all.end(), over_.begin(), over_.end());
    std::stable_sort(all.begin(), all.end(), [](const Contender& a, const Contender& b) {
      return a.cost != b.cost ? a.cost < b.cost : a.peak < b.peak;
    });
    fsdp::Bytes least = 0;
    for (const Contender& k : all) {
      if (k.peak == 0 || (!r_.pareto.empty() && k.peak >= least)) continue;
      least = k.peak;
      r_.pareto.push_back(k);
    }
  }

  // As fast as the fastest: within the error of the prediction, else within the noise.
  bool as_fast(const Contender& k, const Contender& fastest) const {
    const CaseRecord &c = cases_[k.index], &f = cases_[fastest.index];
    if (c.predicted && f.predicted) return k.cost <= fastest.cost * (1 + decision_error(c, f));
    return k.cost <= fastest.cost * (1 + kSame) && intervals_meet(k, fastest);
  }

  // Of predicted cases that are as fast: the least memory, then PyTorch's default, then the fewest units. A difference
  // of memory that nobody can use is none.
  bool rather(const Contender& k, const Contender& than, fsdp::Bytes least) const {
    const CaseRecord &a = cases_[k.index], &b = cases_[than.index];
    const double slack = kMemorySlack * static_cast<double>(r_.limit.value_or(least));
    const auto small = [&](const Contender& x) { return static_cast<double>(x.peak - least) <= slack; };
    if (small(k) != small(than)) return small(k);
    if (is_default_policy(a) != is_default_policy(b)) return is_default_policy(a);
    return a.units.value_or(0) < b.units.value_or(0);
  }

  std::size_t best_of_group() {
    const Contender& fastest = fitting_.front();
    std::vector<std::size_t> group;
    fsdp::Bytes least = fastest.peak;
    for (std::size_t i = 0; i < fitting_.size(); ++i) {
      if (i > 0 && !as_fast(fitting_[i], fastest)) continue;
      group.push_back(i);
      least = std::min(least, fitting_[i].peak);
    }
    std::size_t best = group.front();
    for (const std::size_t i : group) {
      const Contender &k = fitting_[i], &than = fitting_[best];
      const bool better = predicted(k) && predicted(than) ? rather(k, than, least) : k.peak > 0 && k.peak < than.peak;
      if (better) best = i;
    }
    for (const std::size_t i : group) {
      if (i == best || !predicted(fitting_[i])) continue;
      r_.group.push_back(fitting_[i]);
      r_.group_error = std::max(r_.group_error, decision_error(cases_[fitting_[i].index], cases_[fastest.index]));
    }
    return best;
  }
  bool predicted(const Contender& k) const { return cases_[k.index].predicted; }

  void choose() {
    if (fitting_.empty()) return;
    const std::size_t best = best_of_group();
    r_.best = fitting_[best];
    std::set<std::string> listed = {key_of(*r_.best)};
    for (std::size_t i = 0; i < fitting_.size() && r_.runners_up.size() < kListed; ++i) {
      if (i == best || !listed.insert(key_of(fitting_[i])).second) continue;  // no rival of itself
      Contender k = fitting_[i];
      k.why = why_not(k);
      r_.runners_up.push_back(std::move(k));
    }
    for (const Contender& k : over_)
      if (k.cost < r_.best->cost && r_.too_large.size() < kListed) r_.too_large.push_back(k);
  }

  // Of the program that a case is; cases that no key can be made for are themselves.
  const std::string& key_of(const Contender& k) {
    std::string& key = keys_[k.index];
    if (!key.empty()) return key;
    try {
      key = effective_key(settings_of(cases_[k.index])).value_or("");
    } catch (const fsdp::Error&) {  // a foreign record
    }
    if (key.empty()) key = "case " + std::to_string(k.index);
    return key;
  }

  // Settings that make one program, which differ by noise alone.
  void tell_equal_cases() {
    std::map<std::string, std::vector<std::size_t>> groups;
    for (const auto* list : {&fitting_, &over_})
      for (std::size_t i = 0; i < std::min(kMostKeys, list->size()); ++i)
        groups[key_of((*list)[i])].push_back((*list)[i].index);
    std::vector<std::vector<std::size_t>> equal;
    for (auto& [key, members] : groups) {
      if (members.size() < 2) continue;
      std::sort(members.begin(), members.end());
      equal.push_back(std::move(members));
    }
    std::sort(equal.begin(), equal.end());
    if (equal.empty()) return;
    std::size_t settings = 0;
    for (const std::vector<std::size_t>& members : equal) settings += members.size();
    // One group is listed whole; of several the first two settings of the first are the example.
    const std::vector<std::size_t>& first = equal.front();
    const std::size_t shown = equal.size() > 1 ? 2 : std::min(kMostNames, first.size());
    std::string names;
    for (std::size_t i = 0; i < shown; ++i) names += (i > 0 ? "; " : "") + label_of(cases_[first[i]]);
    if (equal.size() == 1 && first.size() > shown) names += fmt::format("; and {} more", first.size() - shown);
    r_.warnings.push_back(
        equal.size() == 1
            ? fmt::format(
                  "{} settings are one effective case, the same units in the same order of operations, and count "
                  "as one: {}",
                  settings, names)
            : fmt::format(
                  "{} settings are {} effective cases, each the same units in the same order of operations, and "
                  "count as {}; for example {}",
                  settings, equal.size(), equal.size(), names));
  }

  std::string why_not(const Contender& k) const {
    const double change = k.cost / r_.best->cost - 1;
    const std::string memory = more_memory(k, *r_.best);
    const double error = decision_error(cases_[k.index], cases_[r_.best->index]);
    if (error > 0 && std::abs(change) <= error)
      return fmt::format("as fast within the error of the prediction ({:.0f} %)", 100 * error) +
             (memory.empty() ? "" : ", and takes " + memory);
    if (intervals_meet(k, *r_.best) && std::abs(change) <= kSame)
      return "as fast within the noise" + (memory.empty() ? "" : ", and takes " + memory);
    std::string s = fmt::format("{:.1f} % slower", 100 * change);
    if (intervals_meet(k, *r_.best)) s += " (intervals meet: not certain)";
    if (const std::string what = growth(cases_[r_.best->index], cases_[k.index]); !what.empty()) s += ": " + what;
    if (!memory.empty()) s += "; takes " + memory;
    return s;
  }

  // What the slower case spends more on: the class that grew most.
  std::string growth(const CaseRecord& fast, const CaseRecord& slow) const {
    if (!fast.partition || !slow.partition) return "";
    // Amount and share are of one quantity: compute is all compute, overlapped or not.
    const Growth g = growth_between(curve(fast), curve(slow));
    if (g.parts.empty()) return "";
    const Growth::Part& most = g.parts.front();
    const std::string why = most.cls == PartitionClass::kCompute ? g.compute_why : std::string(meaning_of(most.cls));
    return fmt::format("{} {} more per {} ({:.0f} % of what grew; {})", words(most.cls),
                       format_nanos(static_cast<fsdp::Nanos>(most.ns)), r_.unit, 100 * most.ns / g.total, why);
  }
  CurvePoint curve(const CaseRecord& c) const { return curve_point(c, per_token_ ? "batch" : ""); }

  void explain() {
    const CaseRecord& c = cases_[r_.best->index];
    const Contender* other = r_.runners_up.empty() ? nullptr : &r_.runners_up.front();
    if (c.predicted && is_default_policy(c) && !r_.group.empty())
      r_.reasons.push_back(
          fmt::format("nothing is faster beyond the error of the prediction ({:.0f} %)", 100 * r_.group_error));
    if (other) {
      const CaseRecord& o = cases_[other->index];
      r_.reasons.push_back(fmt::format("{}: {}", label_of(o), other->why));
      if (c.collectives && o.collectives && *c.collectives != *o.collectives)
        r_.reasons.push_back(fmt::format("{} collectives a step against {}: {}", *c.collectives, *o.collectives,
                                         *c.collectives < *o.collectives
                                             ? "each costs its latency, and there are fewer"
                                             : "more of them, but each is hidden better or held shorter"));
      if (r_.best->peak > other->peak && other->peak > 0)
        r_.reasons.push_back("the price is " + more_memory(*r_.best, *other));
    }
    if (r_.limit && r_.best->peak > 0)
      r_.reasons.push_back(
          fmt::format("peak {} of {}: {:.0f} % free", format_bytes(r_.best->peak), format_bytes(*r_.limit),
                      100 * (1 - static_cast<double>(r_.best->peak) / static_cast<double>(*r_.limit))));
    if (c.overlap_pct)
      r_.reasons.push_back(fmt::format("{:.0f} % of the communication runs under compute", *c.overlap_pct));
    judge(c, other);
  }

  void judge(const CaseRecord& c, const Contender* other) {
    const auto say = [&](Confidence level, const std::string& why) {
      r_.confidence = level;
      r_.confidence_why = why;
    };
    if (c.predicted) return say(Confidence::kLow, "predicted, not measured");
    if (!judge_samples(c.samples).shifts.empty())
      return say(Confidence::kLow, "the samples of the best shift from one level to another");
    if (other && !judge_samples(cases_[other->index].samples).shifts.empty())
      return say(Confidence::kLow, "the samples of the runner-up shift from one level to another");
    if (c.samples.size() < 3)
      return say(Confidence::kLow, fmt::format("{} sample{}", c.samples.size(), c.samples.size() == 1 ? "" : "s"));
    if (!other) return say(Confidence::kMedium, "nothing else fits to compare with");
    if (c.observer_ratio.value_or(1) > kObserverLimit)
      say(Confidence::kMedium, "tracing slows the steps that explain the time");
    else if (intervals_meet(*r_.best, *other))
      say(Confidence::kMedium, "the interval meets that of the runner-up");
    else if (c.emulated)
      say(Confidence::kMedium, "the network is emulated");
    else if (c.ci_coverage < 0.95)
      say(Confidence::kMedium, "too few samples for a 95 % interval");
    else
      say(Confidence::kHigh, "the interval is apart from the runner-up's");
  }

  const std::vector<CaseRecord>& cases_;
  std::vector<std::size_t> members_;
  const RecommendOptions& options_;
  bool per_token_ = false;
  int not_single_ = 0;
  std::map<std::size_t, std::string> keys_;  // by case
  std::vector<Contender> fitting_, over_;
  Recommendation r_;
};

}  // namespace

CaseSettings settings_of(const CaseRecord& c) {
  FileTexts files(c.files);
  CaseSettings out;
  for (const auto& [name, text] : c.settings) {
    try {
      apply_setting(out, name, text, files);
    } catch (const fsdp::ConfigError&) {
      if (setting_row(name).only != DeviceKind::kVirtual) throw;
    }
  }
  return out;
}

std::string label_of(const CaseRecord& c) {
  return axes_text(c.axes,
                   fmt::format("wrap={}, backward_prefetch={}", setting(c, "wrap"), setting(c, "backward_prefetch")));
}

Recommendation recommend_among(const std::vector<CaseRecord>& cases, const std::vector<std::size_t>& members,
                               const RecommendOptions& options) {
  return Advisor(cases, members, options).advise();
}

std::vector<Recommendation> recommend(const std::vector<CaseRecord>& cases, const RecommendOptions& options) {
  std::map<std::string, std::vector<std::size_t>> workloads;
  std::vector<std::string> order;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string key = workload_key(cases[i]);
    if (workloads[key].empty()) order.push_back(key);
    workloads[key].push_back(i);
  }
  std::vector<Recommendation> out;
  for (const std::string& key : order) out.push_back(recommend_among(cases, workloads[key], options));
  return out;
}

const Recommendation& recommendation_for(const std::vector<Recommendation>& all, const std::string& wanted) {
  const std::vector<std::string> parts = split(wanted, ',');
  std::vector<const Recommendation*> by_parts, by_text;
  for (const Recommendation& r : all) {
    if (r.workload == wanted) return r;
    const std::vector<std::string> own = split(r.workload, ',');
    if (std::all_of(parts.begin(), parts.end(),
                    [&](const std::string& p) { return std::find(own.begin(), own.end(), p) != own.end(); }))
      by_parts.push_back(&r);
    if (r.workload.find(wanted) != std::string::npos) by_text.push_back(&r);
  }
  const auto& found = by_parts.empty() ? by_text : by_parts;
  if (found.size() == 1) return *found.front();
  std::string labels;
  for (const Recommendation& r : all) labels += (labels.empty() ? "\"" : ", \"") + r.workload + "\"";
  throw fsdp::ConfigError(
      fmt::format("[--for] \"{}\" names {} of the workloads {}; give one of them, or a part that only it has", wanted,
                  found.empty() ? "none" : "several", labels));
}

}  // namespace harness
