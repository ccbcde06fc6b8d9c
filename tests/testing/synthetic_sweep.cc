#include "tests/testing/synthetic_sweep.h"

#include <algorithm>
#include <string>
#include <utility>

#include "harness/analysis/statistics.h"
#include "tests/testing/synthetic_step.h"

namespace testing_support {
namespace {

using harness::CaseRecord;
using harness::Status;
using Axes = std::vector<std::pair<std::string, std::vector<std::string>>>;
using Settings = std::vector<std::pair<std::string, std::string>>;

constexpr std::int64_t kLayerParameters = 1'600'000;
constexpr std::int64_t kEmbeddingParameters = 4'000'000;

Axes axes_for(int cases) {
  const Axes all{{"wrap", {"root", "blocks:4", "blocks:2", "block", "sublayer"}},
                 {"backward_prefetch", {"none", "pre"}},
                 {"forward_prefetch", {"0", "1"}},
                 {"strategy", {"full_shard", "shard_grad_op"}},
                 {"model", {"llama", "gpt2", "t5"}},
                 {"batch", {"1", "2", "4", "8", "16"}}};
  Axes chosen;
  std::size_t product = 1;
  for (const auto& axis : all) {
    chosen.push_back(axis);
    product *= axis.second.size();
    if (product >= static_cast<std::size_t>(cases)) break;
  }
  return chosen;
}

std::string value_of(const Settings& settings, const std::string& name, const std::string& otherwise) {
  for (const auto& [key, value] : settings) {
    if (key == name) return value;
  }
  return otherwise;
}

std::string layers_name(int first, int count) {
  std::string name = "model.layers." + std::to_string(first);
  return count > 1 ? name + "-" + std::to_string(first + count - 1) : name;
}

std::vector<SyntheticUnit> units_of(const std::string& wrap, int layers, double size) {
  const auto sized = [&](std::int64_t n) { return static_cast<std::int64_t>(static_cast<double>(n) * size); };
  std::vector<SyntheticUnit> units{{"model", sized(kEmbeddingParameters)}};
  if (wrap == "root") {
    units[0].parameters += sized(kLayerParameters) * layers;
  } else if (wrap == "sublayer") {
    for (int i = 0; i < layers; ++i) {
      units.push_back({layers_name(i, 1) + ".self_attn", sized(kLayerParameters * 3 / 8)});
      units.push_back({layers_name(i, 1) + ".mlp", sized(kLayerParameters * 5 / 8)});
    }
  } else {
    const int k = wrap == "block" ? 1 : std::stoi(wrap.substr(wrap.find(':') + 1));
    for (int i = 0; i < layers; i += k) {
      const int count = std::min(k, layers - i);
      units.push_back({layers_name(i, count), sized(kLayerParameters) * count});
    }
  }
  return units;
}

void fill_memory(CaseRecord& c, const SyntheticOptions& o, bool reshard, int batch) {
  std::int64_t total = 0, largest = 0;
  std::size_t largest_at = 0;
  for (std::size_t i = 0; i < c.unit_table.size(); ++i) {
    total += c.unit_table[i].parameters;
    if (c.unit_table[i].unsharded_bytes > largest) largest = c.unit_table[i].unsharded_bytes, largest_at = i;
  }
  const std::int64_t shard = 4 * total / o.ranks;
  fsdp::BytesByCategory by{shard,   shard / 2,          2 * shard, reshard ? 2 * largest : 4 * total,
                           largest, (24 << 20) * batch, 3 << 20};
  fsdp::Bytes peak = 0;
  for (const fsdp::Bytes b : by) peak += b;
  c.peak_bytes = peak;
  c.peak_cause = c.unit_table[largest_at].name + ", backward, " +
                 (by[5] > by[3] && by[5] > by[2] ? "activations"
                  : by[3] > by[2]                ? "unsharded parameters"
                                                 : "optimizer state");
  for (int r = 0; r < o.ranks; ++r) {
    harness::RankRecord rank;
    rank.rank = r;
    rank.peak.total = peak;
    rank.peak.at_peak = rank.category_peaks = by;
    rank.peak.where = {static_cast<fsdp::UnitId>(largest_at), fsdp::Pass::kBackward};
    rank.peak_cause = c.peak_cause;
    c.ranks.push_back(rank);
  }
}

void fill_times(CaseRecord& c, const SyntheticOptions& o, fsdp::Nanos step, int batch, int index) {
  for (int i = 0; i < 9; ++i) c.samples.push_back(step + step * ((i * 37 + index * 11) % 19 - 9) / 1200);
  const harness::SampleSummary s = harness::summarize(c.samples);
  c.step_ns = s.median, c.step_mad_ns = s.mad, c.step_ci_low_ns = s.ci_low, c.step_ci_high_ns = s.ci_high;
  c.ci_coverage = s.coverage, c.repetitions = s.n, c.stopped_by = "narrow";
  c.tokens_per_s = 1e9 * 512 * batch * o.ranks / static_cast<double>(s.median);
}

void fill_trace(CaseRecord& c, const SyntheticOptions& o, SyntheticStep step, int index) {
  for (int r = 0; r < o.ranks; ++r) {
    step.rank = r;
    step.jitter = 1 + 0.01 * ((r * 7 + index * 3) % 5);
    const std::vector<fsdp::Span> spans = synthetic_spans(step);
    const auto parts = harness::partition_steps(spans);
    c.steps.push_back({r, 0, parts[0].end - parts[0].begin, parts[0].classes});
    c.ranks[static_cast<std::size_t>(r)].step_ns = {parts[0].end - parts[0].begin};
    if (!c.traced_step_ns || *c.traced_step_ns < parts[0].end - parts[0].begin) {
      c.traced_step_ns = parts[0].end - parts[0].begin;
      c.partition = parts[0].classes;
      c.partition_details = parts[0].details;
      c.unit_metrics = harness::unit_metrics(spans, parts[0]);
      c.partition_rank = r;
      if (parts[0].communication > 0) {
        c.overlap_pct =
            100.0 * static_cast<double>(parts[0].communication_hidden) / static_cast<double>(parts[0].communication);
      }
      c.collectives = std::count_if(spans.begin(), spans.end(), [](const auto& s) { return is_collective(s.kind); });
      c.communicated_bytes = 0;
      for (const auto& s : spans)
        *c.communicated_bytes += is_collective(s.kind) ? s.bytes * (o.ranks - 1) / o.ranks : 0;
    }
    if (o.spans) c.spans.insert(c.spans.end(), spans.begin(), spans.end());
  }
  c.observer_ratio = 1.01 + 0.001 * (index % 9);
}

std::pair<Status, std::string> failure(int index) {
  switch (index % 31) {
    case 6:
      return {Status::kTimeout, "rank 1 waited 60 s for all_gather of model.layers.4"};
    case 12:
      return {Status::kCrashed, "rank 0 ended by signal 11 (segmentation fault)"};
    case 19:
      return {Status::kCommError, "rank 1: connection to rank 0 closed by peer"};
    case 23:
      return {Status::kConfigError, "wrap blocks:2 with strategy shard_grad_op leaves no unit to prefetch"};
    case 27:
      return {Status::kSkipped, "a smaller batch with the same settings was out of memory"};
    default:
      return {Status::kOk, ""};
  }
}

// "llama-block-0000000000a7": like the ids of real cases.
std::string id_of(const Settings& axes, int index) {
  std::string number = std::to_string(index * 7919 + 17);
  return value_of(axes, "model", "llama") + "-" + value_of(axes, "wrap", "block") + "-" +
         std::string(12 - number.size(), '0') + number;
}

void judge(CaseRecord& c, const SyntheticOptions& o, int index) {
  const auto [status, reason] = o.failures ? failure(index) : std::pair<Status, std::string>{Status::kOk, ""};
  c.status = status, c.reason = reason;
  if (status != Status::kOk) {
    c.peak_bytes.reset(), c.peak_cause.clear(), c.ranks.clear();
  } else if (*c.peak_bytes > o.budget_bytes) {
    c.status = Status::kOom;
    c.reason = "[memory] " + c.peak_cause + " passes the budget; wrap finer or raise memory_budget";
  } else if (*c.peak_bytes * 100 >= o.budget_bytes * 95) {
    c.status = Status::kNearOom;
    c.reason = "peak is " + std::to_string(*c.peak_bytes * 100 / o.budget_bytes) + " % of the budget";
  }
}

CaseRecord case_at(const SyntheticOptions& o, const Settings& axes, int index) {
  CaseRecord c;
  c.id = id_of(axes, index);
  c.axes = axes;
  c.settings = {{"device", "cpu"},
                {"model", "llama"},
                {"set", "layers=12,dim=256"},
                {"world", std::to_string(o.ranks)},
                {"batch", "1"},
                {"seq", "512"},
                {"wrap", "block"},
                {"strategy", "full_shard"},
                {"forward_prefetch", "1"},
                {"backward_prefetch", "pre"},
                {"wire", "200us,2.5GB/s"},
                {"memory_budget", std::to_string(o.budget_bytes)}};
  for (auto& [name, value] : c.settings) value = value_of(axes, name, value);
  const std::string model = value_of(axes, "model", "llama");
  const int batch = std::stoi(value_of(axes, "batch", "1"));
  const bool reshard = value_of(axes, "strategy", "full_shard") == "full_shard";

  SyntheticStep step;
  step.units = units_of(value_of(axes, "wrap", "block"), o.layers, model == "gpt2" ? 0.7 : model == "t5" ? 1.2 : 1);
  step.ranks = o.ranks, step.reshard = reshard, step.ns_per_parameter *= batch * 10;
  step.prefetch_backward = value_of(axes, "backward_prefetch", "pre") == "pre";
  step.prefetch_forward = std::stoi(value_of(axes, "forward_prefetch", "1"));
  for (const auto& u : step.units) {
    c.unit_table.push_back({u.name, u.parameters, 4 * u.parameters, 4 * u.parameters / o.ranks, 4 * u.parameters,
                            reshard ? "full_shard" : "shard_grad_op"});
  }
  c.units = static_cast<std::int64_t>(step.units.size());
  c.largest_unit_bytes = std::max_element(c.unit_table.begin(), c.unit_table.end(), [](const auto& a, const auto& b) {
                           return a.unsharded_bytes < b.unsharded_bytes;
                         })->unsharded_bytes;
  fill_memory(c, o, reshard, batch);
  judge(c, o, index);
  if (harness::measured(c.status)) {
    fill_trace(c, o, step, index);
    fill_times(c, o, *c.traced_step_ns * 985 / 1000, batch, index);
  }
  c.emulated = true;
  c.environment = {{"cpu", "AMD EPYC 7B13"}, {"libtorch", "2.11.0"}, {"revision", "0123abc"}};
  c.environment["machine.mhz"] = std::to_string(2400 + index % 5 * 60) + " -> 2700";
  if (index % 11 == 4) {
    c.environment["machine.throttled_us"] = "5200";
    c.warnings = {"throttled: a CPU quota stopped this case for 5 ms"};
  }
  if (index % 7 == 3) c.warnings = {"the memory gate (2) is below the prefetch depth asked for (3)"};
  c.started_at = 1'764'000'000 + index * 40, c.finished_at = c.started_at + 31;
  return c;
}

}  // namespace

SyntheticSweep synthetic_sweep(const SyntheticOptions& o) {
  SyntheticSweep s;
  s.sweep.name = "granularity of llama on two ranks";
  s.sweep.spec_text =
      "name: granularity\nbase:\n  model: llama\naxes:\n  wrap: [root, \"blocks:4\", \"blocks:2\", block, sublayer]\n";
  s.sweep.spec_hash = "5f0c2a91d3e7";
  s.sweep.command = "shardscope sweep granularity.yaml -o out/granularity";
  s.sweep.environment = {{"cpu", "AMD EPYC 7B13"}, {"cores", "2"}, {"libtorch", "2.11.0"}, {"compiler", "GCC 12.2.0"}};
  s.sweep.created_at = 1'764'000'000;
  s.sweep.axes = axes_for(o.cases);
  std::vector<std::size_t> at(s.sweep.axes.size(), 0);
  for (int i = 0; i < o.cases; ++i) {
    Settings axes;
    for (std::size_t a = 0; a < at.size(); ++a) axes.emplace_back(s.sweep.axes[a].first, s.sweep.axes[a].second[at[a]]);
    s.cases.push_back(case_at(o, axes, i));
    for (std::size_t a = 0; a < at.size(); ++a) {
      if (++at[a] < s.sweep.axes[a].second.size()) break;
      at[a] = 0;
    }
  }
  return s;
}

void make_hostile(SyntheticSweep& s) {
  const std::string markup = "</script><script>window.broken=1</script><img src=x onerror='window.broken=1'>";
  s.sweep.name = markup + "\"'`${1}&amp;";
  s.sweep.command = "shardscope sweep '" + markup + "'";
  s.sweep.spec_text =
      "# \xE2\x80\xAE"
      "desrever\n" +
      markup + std::string(1, '\0') + "\xff\xfe";
  for (auto& [name, values] : s.sweep.axes) {
    if (name == "wrap" && values.size() > 1) values[1] = markup;
  }
  const std::string texts[] = {markup,
                               std::string(10'000, 'w'),
                               "\xF0\x9F\xA7\xA8\xF0\x9F\x8F\xB3\xEF\xB8\x8F\xE2\x80\x8D\xF0\x9F\x8C\x88 emoji",
                               "\xD7\x9E\xD7\x95\xD7\x93\xD7\x9C \xE2\x80\xAE.layers",
                               "\" onmouseover=\"alert(1)",
                               "a\xc3(b\xff\xf0\x28\x8c\x28",
                               "line\xE2\x80\xA8"
                               "break\ttab\r\nnewline",
                               ""};
  std::size_t next = 0;
  for (CaseRecord& c : s.cases) {
    for (auto& unit : c.unit_table) unit.name = texts[next++ % std::size(texts)];
    c.reason = texts[next++ % std::size(texts)];
    c.peak_cause = texts[next++ % std::size(texts)];
    c.warnings = {texts[next++ % std::size(texts)]};
    c.environment[markup] = texts[next++ % std::size(texts)];
    for (auto* list : {&c.axes, &c.settings}) {
      for (auto& [name, value] : *list) {
        if (name == "wrap" && value == "blocks:4") value = markup;
      }
    }
  }
}

}  // namespace testing_support
