#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "harness/advise/findings.h"
#include "reports/findings.h"
#include "reports/text.h"

namespace reports {
namespace {

using harness::CaseRecord;
using harness::Status;
using Index = std::optional<std::size_t>;

constexpr double kWorthSaying = 0.05;  // a slowest case within this of the best is not called slow

class Writer {
 public:
  Writer& say(std::string text) { return add({std::move(text), false, {}}); }
  Writer& strong(std::string text) { return add({std::move(text), true, {}}); }
  Writer& link(std::string text, std::size_t i) { return add({std::move(text), true, i}); }
  Sentence done() { return std::move(s_); }

 private:
  Writer& add(Piece p) {
    s_.push_back(std::move(p));
    return *this;
  }
  Sentence s_;
};

struct Context {
  const ReportInput& input;
  const SweepShape& shape;
  const Workload& workload;
  const harness::Recommendation& advice;
  const Findings& f;

  const CaseRecord& at(std::size_t i) const { return input.cases[i]; }
  double cost(std::size_t i) const { return *cost_of(at(i), f.per_token); }
  std::string name(std::size_t i) const { return point_label(shape, i); }
  std::string cost_text(std::size_t i) const {
    if (f.per_token) return rate_text(*at(i).tokens_per_s);
    return duration_text(static_cast<double>(*at(i).step_ns)) + " per step";
  }
  std::string units_text(std::size_t i) const {
    return at(i).units ? " (" + count_text(*at(i).units, "unit", "units") + ")" : std::string();
  }
  // "286 MiB, 68 % of the 420 MiB budget"
  std::string peak_text(std::size_t i) const {
    const CaseRecord& c = at(i);
    if (!c.peak_bytes) return "unknown";
    std::string text = bytes_text(*c.peak_bytes);
    if (const auto budget = budget_of(c); budget && *budget > 0) {
      text += ", " + percent_text(static_cast<double>(*c.peak_bytes) / static_cast<double>(*budget)) + " of the " +
              bytes_text(*budget) + " budget";
    }
    return text;
  }
};

void say_gain_over_standard(const Context& x, Writer& w) {
  const std::size_t best = *x.f.best;
  const std::string standard = x.f.departures.empty() ? "the default" : "the nearest to the default";
  if (!x.f.standard) {
    w.say("; the default (block, pre) is not in this sweep");
  } else if (*x.f.standard == best) {
    w.say("; that is the default");
    if (!x.f.departures.empty()) w.say(fmt::format(" but for {}", fmt::join(x.f.departures, ", ")));
  } else if (!cost_of(x.at(*x.f.standard), x.f.per_token)) {
    w.say("; " + standard + " (").link(x.name(*x.f.standard), *x.f.standard).say(") ended as ");
    w.strong(std::string(harness::name_of(x.at(*x.f.standard).status)));
  } else {
    const double change = 1 - x.cost(best) / x.cost(*x.f.standard);
    w.say(", ").strong(change >= 0 ? percent_text(change) + " less" : percent_text(-change) + " more");
    w.say((x.f.per_token ? " time per token than " : " than ") + standard + " (");
    w.link(x.name(*x.f.standard), *x.f.standard).say(", " + x.cost_text(*x.f.standard) + ")");
  }
}

// What was faster and is not recommended, and how sure the recommendation is.
void note_advice(const Context& x, std::vector<Sentence>& notes) {
  if (!x.f.best) return;
  const auto note = [&](const harness::Contender& k, const std::string& how, const std::string& why) {
    notes.push_back(Writer().link(x.name(k.index), k.index).say(how + " (" + x.cost_text(k.index) + ") " + why).done());
  };
  for (const harness::Contender& k : x.advice.too_large) note(k, " is faster still", "but " + k.why);
  for (const harness::Contender& k : x.advice.runners_up) {
    if (x.cost(k.index) < x.cost(*x.f.best)) note(k, " is no better", "though its time is shorter: it is " + k.why);
  }
  for (const std::string& warning : x.advice.warnings) notes.push_back({{warning, false, {}}});
  if (x.advice.best && !x.advice.confidence_why.empty()) {
    notes.push_back(Writer()
                        .say("Confidence: " + std::string(harness::name_of(x.advice.confidence)) + " (" +
                             x.advice.confidence_why + ").")
                        .done());
  }
}

void note_interval(const Context& x, std::vector<Sentence>& notes) {
  if (!x.f.best || !x.f.standard || *x.f.best == *x.f.standard) return;
  const CaseRecord& a = x.at(*x.f.best);
  const CaseRecord& b = x.at(*x.f.standard);
  if (x.f.per_token || !a.step_ci_high_ns || !b.step_ci_low_ns || a.step_ns >= b.step_ns) return;
  if (*a.step_ci_high_ns >= *b.step_ci_low_ns) {
    notes.push_back(Writer()
                        .say("The intervals of the best and " +
                             std::string(x.f.departures.empty() ? "the default" : "the nearest to the default") +
                             " meet: the gain is not proven.")
                        .done());
  }
}

Answer answer_wrap(const Context& x) {
  Answer a{"How should I wrap it?", {}, {}};
  if (!x.f.best) {
    a.sentence = Writer().say("No case ran to its end, so there is nothing to recommend.").done();
    return a;
  }
  const std::size_t best = *x.f.best;
  Writer w;
  w.say("With ").link(x.name(best), best).say(" (");
  if (x.at(best).units) w.say(count_text(*x.at(best).units, "unit", "units") + "; ");
  w.say("peak ").strong(x.peak_text(best)).say("): ").strong(x.cost_text(best));
  say_gain_over_standard(x, w);
  if (x.f.worst && *x.f.worst != best) {
    w.say("; the slowest that fits (").link(x.name(*x.f.worst), *x.f.worst).say(") takes ");
    w.strong(ratio_text(x.cost(*x.f.worst) / x.cost(best)));
    w.say(x.f.per_token ? " as long per token" : " as long");
  }
  w.say(".");
  a.sentence = w.done();
  if (x.at(best).status == Status::kNearOom) {
    a.notes.push_back(Writer().say("Every case that ran was near out of memory.").done());
  }
  note_interval(x, a.notes);
  note_advice(x, a.notes);
  return a;
}

bool is_exposed(harness::PartitionClass c) {
  return c >= harness::PartitionClass::kExposedAllGatherForward && c <= harness::PartitionClass::kExposedOther;
}

// "model.layers.3, forward, all-gather (1.68 ms of 62.1 ms)": unit, pass and collective with the largest part of a
// class.
std::string largest_part(const CaseRecord& c, harness::PartitionClass cls) {
  const harness::PartitionDetail* largest = nullptr;
  for (const auto& d : c.partition_details) {
    if (d.cls == cls && (!largest || d.ns > largest->ns)) largest = &d;
  }
  if (!largest || largest->ns <= 0 || largest->unit < 0) return {};
  const auto unit = static_cast<std::size_t>(largest->unit);
  if (unit >= c.unit_table.size()) return {};
  std::string text = c.unit_table[unit].name.empty() ? "the root unit" : c.unit_table[unit].name;
  if (largest->pass != fsdp::Pass::kNone) text.append(", ").append(fsdp::name_of(largest->pass));
  const std::string_view collective = collective_text(largest->collective);
  if (is_exposed(cls) && !collective.empty()) text.append(", ").append(collective);
  const fsdp::Nanos all = c.partition ? (*c.partition)[static_cast<std::size_t>(cls)] : largest->ns;
  return fmt::format("{} ({} of {})", text, duration_text(static_cast<double>(largest->ns)),
                     duration_text(static_cast<double>(all)));
}

void say_cause(const Context& x, const harness::Growth& g, Writer& w) {
  const auto amount = [&](const harness::Growth::Part& p, const std::string& meaning = "") {
    return fmt::format(" (+{}{}, {} of what grew{})", duration_text(p.ns), x.f.per_token ? " per token" : "",
                       percent_text(p.ns / g.total), meaning);
  };
  const auto& first = g.parts.front();
  if (first.ns / g.total < 0.5 && g.parts.size() > 1) {
    const auto& second = g.parts[1];
    w.say("a mix of ").strong(std::string(class_text(first.cls))).say(amount(first) + " and ");
    w.strong(std::string(class_text(second.cls))).say(amount(second));
  } else {
    w.strong(std::string(class_text(first.cls)));
    const bool compute = first.cls == harness::PartitionClass::kCompute;
    w.say(amount(first, "; " + (compute ? g.compute_why : std::string(harness::meaning_of(first.cls)))));
  }
  const std::string where = largest_part(x.at(*x.f.worst), first.cls);
  if (!where.empty()) w.say("; its largest part is at ").strong(where);
}

void note_observer(const Context& x, std::vector<Sentence>& notes) {
  for (const Index& i : {x.f.best, x.f.worst}) {
    if (!i || !x.at(*i).observer_ratio || *x.at(*i).observer_ratio <= 1.05) continue;
    notes.push_back(
        Writer()
            .say("Tracing slowed ")
            .link(x.name(*i), *i)
            .say(" by " + percent_text(*x.at(*i).observer_ratio - 1) + ": take the parts as shares, not as times.")
            .done());
    return;
  }
}

// The fastest of all that ran to its end, near out of memory or not.
Index fastest_of(const Context& x) {
  Index found;
  for (const std::size_t i : x.workload.cases) {
    if (cost_of(x.at(i), x.f.per_token) && (!found || x.cost(i) < x.cost(*found))) found = i;
  }
  return found;
}

harness::Growth growth(const Context& x, std::size_t from, std::size_t to) {
  const auto point = [&](std::size_t i) { return harness::curve_point(x.at(i), x.f.per_token ? "batch" : ""); };
  return harness::growth_between(point(from), point(to));
}

Answer answer_slow(const Context& x) {
  Answer a{"Why is it slow there?", {}, {}};
  const Index fastest = fastest_of(x);
  if (!fastest || !x.f.worst || *fastest == *x.f.worst) {
    a.sentence = Writer().say("Fewer than two cases ran to their end, so there is nothing to compare.").done();
    return a;
  }
  const double ratio = x.cost(*x.f.worst) / x.cost(*fastest);
  Writer w;
  if (ratio < 1 + kWorthSaying) {
    w.say("Nothing is slow: the slowest, ").link(x.name(*x.f.worst), *x.f.worst).say(", takes only ");
    w.strong(percent_text(ratio - 1) + " more").say(" than the best.");
    a.sentence = w.done();
    return a;
  }
  w.link(x.name(*x.f.worst), *x.f.worst).say(x.units_text(*x.f.worst) + " runs at ").strong(x.cost_text(*x.f.worst));
  w.say(" against " + x.cost_text(*fastest) + " for ");
  if (fastest == x.f.best) {
    w.say("the best");
  } else {
    const bool near = x.at(*fastest).status == Status::kNearOom;
    w.link(x.name(*fastest), *fastest).say(near ? " (near out of memory)" : " (the fastest)");
  }
  w.say(", because of ");
  const harness::Growth g = growth(x, *fastest, *x.f.worst);
  if (g.parts.empty()) {
    w.say("what no trace shows: one of the two was not traced");
  } else {
    say_cause(x, g, w);
  }
  w.say(".");
  a.sentence = w.done();
  note_observer(x, a.notes);
  return a;
}

void say_oom(const Context& x, std::size_t i, Writer& w) {
  const CaseRecord& c = x.at(i);
  w.link(x.name(i), i).say(x.units_text(i) + " runs out of memory");
  if (!c.peak_cause.empty()) w.say(" at ").strong(c.peak_cause);
  const auto budget = budget_of(c);
  if (c.peak_bytes) w.say(", with " + bytes_text(*c.peak_bytes) + " in use");
  if (budget) w.say(c.peak_bytes ? " of a budget of " : ", under a budget of ").strong(bytes_text(*budget));
}

// The line that a reader cares for first: wrapping before batch, the best case's own line before others.
const Boundary* main_boundary(const Context& x) {
  const Boundary* chosen = nullptr;
  int chosen_score = -1;
  for (const Boundary& b : x.f.boundaries) {
    int score = b.last_fit ? 4 : 0;
    if (static_cast<int>(b.axis) == x.shape.granularity) score += 2;
    if (x.f.best && b.last_fit) {
      std::vector<int> mine = x.shape.at[*b.last_fit], best = x.shape.at[*x.f.best];
      mine[b.axis] = best[b.axis] = 0;
      score += mine == best;
    }
    if (score > chosen_score) chosen = &b, chosen_score = score;
  }
  return chosen;
}

Sentence no_boundary(const Context& x) {
  Index largest;
  for (const std::size_t i : x.workload.cases) {
    if (!harness::measured(x.at(i).status) || !x.at(i).peak_bytes) continue;
    if (!largest || *x.at(i).peak_bytes > *x.at(*largest).peak_bytes) largest = i;
  }
  for (const std::size_t i : x.workload.cases) {
    if (x.at(i).status != Status::kOom) continue;
    Writer w;
    say_oom(x, i, w);
    return w.say(".").done();
  }
  if (!largest) return Writer().say("No case ran to its end, so no peak is known.").done();
  return Writer()
      .say("Nowhere in this sweep: the largest peak is that of ")
      .link(x.name(*largest), *largest)
      .say(", ")
      .strong(x.peak_text(*largest))
      .say(".")
      .done();
}

Answer answer_fit(const Context& x) {
  Answer a{"Where does it stop fitting?", {}, {}};
  const Boundary* edge = main_boundary(x);
  if (!edge) {
    a.sentence = no_boundary(x);
    return a;
  }
  Writer w;
  if (edge->last_fit) {
    w.link(x.name(*edge->last_fit), *edge->last_fit).say(x.units_text(*edge->last_fit) + " still fits (peak ");
    w.strong(x.peak_text(*edge->last_fit)).say("); ");
  }
  say_oom(x, *edge->first_oom, w);
  a.sentence = w.say(".").done();
  if (const std::string& reason = x.at(*edge->first_oom).reason; !reason.empty())
    a.notes.push_back({{reason, false, {}}});
  if (edge->violated) {
    a.notes.push_back(
        Writer().say("Something fits beyond that point: memory does not grow steadily along this axis.").done());
  }
  if (x.f.boundaries.size() > 1) {
    const auto n = static_cast<std::int64_t>(x.f.boundaries.size());
    a.notes.push_back(
        Writer().say(count_text(n, "boundary", "boundaries") + " in all, in the table under memory.").done());
  }
  return a;
}

}  // namespace

std::string plain(const Sentence& s) {
  std::string text;
  for (const Piece& p : s) text += p.text;
  return text;
}

void write_answers(const ReportInput& input, const SweepShape& shape, const Workload& workload,
                   const harness::Recommendation& advice, Findings& f) {
  const Context x{input, shape, workload, advice, f};
  f.wrap = answer_wrap(x);
  f.slow = answer_slow(x);
  f.fit = answer_fit(x);
}

}  // namespace reports
