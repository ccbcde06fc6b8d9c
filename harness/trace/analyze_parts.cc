#include "harness/trace/analyze_parts.h"

#include <algorithm>

#include "harness/trace/json_text.h"

namespace harness {

using fsdp::Nanos;

std::optional<int> rank_in_name(const std::string& path) {
  const std::string name = path.substr(path.find_last_of('/') + 1);
  for (std::size_t at = name.find("rank"); at != std::string::npos; at = name.find("rank", at + 1)) {
    std::size_t i = at + 4;
    if (i < name.size() && (name[i] == '_' || name[i] == '-' || name[i] == ' ' || name[i] == '.')) ++i;
    std::size_t end = i;
    while (end < name.size() && name[end] >= '0' && name[end] <= '9' && end - i < 7) ++end;
    if (end > i) return std::stoi(name.substr(i, end - i));
  }
  return std::nullopt;
}

std::string unit_name(fsdp::UnitId unit, const std::vector<std::string>& names) {
  return unit >= 0 && static_cast<std::size_t>(unit) < names.size() ? names[static_cast<std::size_t>(unit)]
                                                                    : std::string();
}

const std::vector<std::string>& names_of(const RowAnalysis& row) {
  static const std::vector<std::string> kNone;
  return row.unit_names ? *row.unit_names : kNone;
}

std::string before_steps_text(const RowAnalysis& row) {
  const ForeignStep& b = row.partition.before;
  return std::to_string(b.operations) + (b.operations == 1 ? " operation" : " operations") +
         " before the first step (" + grouped_micros(b.running.length(~0u)) + " us of work in " +
         grouped_micros(b.length()) + " us) are in no step: the overlap and the partition are those of the steps";
}

namespace {

// The host sits in a call between the launches of two gathers: the network is not to blame for the second.
void add_host_syncs(const RowAnalysis& row, Nanos& left, std::vector<AnalysisFinding>& out) {
  const std::vector<HostSync>& all = row.partition.host_syncs;
  const Nanos length = row.partition.whole.length();
  for (std::size_t i = 0; i < std::min<std::size_t>(all.size(), 3); ++i) {
    const HostSync& s = all[i];
    if ((s.exposed_ns + s.gap_ns) < length / 100) continue;
    const Nanos ns = std::min(left, s.exposed_ns);
    left -= ns;
    out.push_back({"host_sync",
                   "the host is blocked in " + row.call_names.at(i) + " (" + std::to_string(s.calls) +
                       (s.calls == 1 ? " call, " : " calls, ") + grouped_micros(s.exposed_ns + s.gap_ns) +
                       " us without compute) between the launches of all-gathers, so the next ones are issued late: "
                       "take the synchronization out, or prefetch explicitly (FSDP2: set_modules_to_forward_prefetch, "
                       "set_modules_to_backward_prefetch); exposed meanwhile",
                   ns});
  }
}

double hidden_pct(const KindTimes& k) {
  return k.ns > 0 ? 100.0 * static_cast<double>(k.hidden_ns) / static_cast<double>(k.ns) : 0;
}

// What orders collectives that could overlap. They claim no time: what is exposed is claimed by unit.
void add_ordering(const ForeignPartition& p, std::vector<AnalysisFinding>& out) {
  const bool enough = p.all_gather.operations >= 3 && p.reduce_scatter.operations >= 3;
  const bool apart = std::none_of(p.streams.begin(), p.streams.end(), [](const StreamUse& s) {
    return (s.all_gathers > 0 && s.reduce_scatters > 0) || (s.compute > 0 && s.communication > 0);
  });
  if (!enough || !apart) return;
  const double gathers = hidden_pct(p.all_gather), reduces = hidden_pct(p.reduce_scatter);
  if (gathers >= 99 && reduces <= 1) {
    out.push_back(
        {"hardware_queues",
         "all-gathers are hidden, reduce-scatters run only while compute pauses: check the number of hardware "
         "queues (CUDA_DEVICE_MAX_CONNECTIONS) before the network"});
  } else if (!p.concurrent_collectives) {
    out.push_back(
        {"never_concurrent",
         "all-gathers and reduce-scatters are never concurrent although on different streams: one communicator "
         "orders them; a second one lets them overlap and costs its buffers"});
  }
}

}  // namespace

std::vector<AnalysisFinding> findings_of(const RowAnalysis& row) {
  std::vector<AnalysisFinding> out;
  const ForeignPartition& p = row.partition;
  add_ordering(p, out);
  Nanos claimed = 0;
  for (const StreamUse& s : p.streams) {
    // A barrier or two on the compute stream is no finding.
    if (s.communication < 3 || s.compute < 3 || s.exposed == 0) continue;
    out.push_back({"same_stream",
                   "communication runs on stream " + std::to_string(s.stream) +
                       ", which also runs compute: the two cannot overlap; give collectives a stream of their own",
                   s.exposed});
    claimed += s.exposed;
  }
  std::vector<Saving> savings = row.total.savings;
  sort_savings(savings);
  Nanos left = std::max(Nanos{0}, exposed(row.total.partition.classes) - claimed);
  add_host_syncs(row, left, out);
  for (const Saving& s : savings) {
    if (out.size() >= 8 || left <= 0) break;
    const Nanos ns = std::min(left, s.exposed_ns);
    left -= ns;
    out.push_back({"exposed", "exposed " + saving_name(s, names_of(row)), ns, std::min(ns, s.saved_ns)});
  }
  return out;
}

std::string saving_name(const Saving& s, const std::vector<std::string>& names) {
  std::string text(fsdp::name_of(s.collective));  // "all_gather"
  std::replace(text.begin(), text.end(), '_', s.collective == fsdp::SpanKind::kOtherCollective ? ' ' : '-');
  const std::string unit = unit_name(s.unit, names);
  if (!unit.empty()) text += " of " + unit;
  if (s.pass != fsdp::Pass::kNone) text += ", " + std::string(fsdp::name_of(s.pass));
  return text;
}

CriticalStretch longest_stretch(const std::vector<ForeignStep>& steps) {
  CriticalStretch best, open;
  Nanos charged_most = 0;
  auto close = [&] {
    if (open.end - open.begin > best.end - best.begin) {
      const auto largest = std::max_element(open.classes.begin(), open.classes.end());
      open.largest = static_cast<PartitionClass>(largest - open.classes.begin());
      best = open;
    }
    open = {};
    charged_most = 0;
  };
  for (const ForeignStep& step : steps) {
    for (const PartitionPiece& p : step.partition.pieces) {
      const bool works = p.cls == PartitionClass::kCompute || p.cls == PartitionClass::kOverlapped ||
                         p.cls == PartitionClass::kOptimizer;
      if (works || (open.end > open.begin && p.begin != open.end)) close();
      if (works) continue;
      if (open.end == open.begin) open.begin = p.begin, open.step = step.label;
      open.end = p.end;
      open.classes[static_cast<std::size_t>(p.cls)] += p.end - p.begin;
      if (p.unit != fsdp::kNoUnit && p.end - p.begin > charged_most) charged_most = p.end - p.begin, open.unit = p.unit;
    }
  }
  close();
  return best;
}

void add_units(std::vector<UnitMetrics>& all, const UnitMetrics& m) {
  auto it = std::find_if(all.begin(), all.end(), [&](const auto& x) { return x.unit == m.unit && x.pass == m.pass; });
  if (it == all.end()) {
    all.push_back(m);
    return;
  }
  it->all_gathers += m.all_gathers, it->reduce_scatters += m.reduce_scatters;
  it->other_collectives += m.other_collectives;
  it->all_gather_bytes += m.all_gather_bytes, it->reduce_scatter_bytes += m.reduce_scatter_bytes;
  it->all_gather_ns += m.all_gather_ns, it->reduce_scatter_ns += m.reduce_scatter_ns;
  it->exposed_ns += m.exposed_ns, it->hidden_ns += m.hidden_ns;
  it->compute_ns += m.compute_ns, it->copy_ns += m.copy_ns;
  it->queued_behind_ns += m.queued_behind_ns, it->slot_delay_ns += m.slot_delay_ns;
}

}  // namespace harness
