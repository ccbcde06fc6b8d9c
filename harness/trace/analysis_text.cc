#include <algorithm>
#include <cstdio>

#include "harness/trace/analyze_parts.h"
#include "harness/trace/json_text.h"

namespace harness {
namespace {

using fsdp::Nanos;

std::string micros(Nanos ns) { return grouped_micros(ns); }

std::string padded(const std::string& s, std::size_t width, bool right = true) {
  const std::string space(s.size() < width ? width - s.size() : 0, ' ');
  return right ? space + s : s + space;
}

std::string percent(double v, int decimals = 2) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f %%", decimals, v);
  return text;
}

std::string share(Nanos part, Nanos whole) {
  return whole > 0 ? percent(100.0 * static_cast<double>(part) / static_cast<double>(whole), 1) : "";
}

std::string unit_of(fsdp::UnitId unit, const std::vector<std::string>& names) {
  return unit >= 0 && static_cast<std::size_t>(unit) < names.size() ? names[static_cast<std::size_t>(unit)] : "-";
}

struct Table {
  std::vector<std::vector<std::string>> rows;
  std::string text() const {
    std::vector<std::size_t> widths;
    for (const auto& r : rows) {
      widths.resize(std::max(widths.size(), r.size()));
      for (std::size_t i = 0; i < r.size(); ++i) widths[i] = std::max(widths[i], r[i].size());
    }
    std::string out;
    for (const auto& r : rows) {
      std::string line = "  ";
      for (std::size_t i = 0; i < r.size(); ++i) line += padded(r[i], widths[i] + (i > 0 ? 2 : 0), i > 0);
      while (!line.empty() && line.back() == ' ') line.pop_back();
      out += line + "\n";
    }
    return out;
  }
};

std::string overlap_line(const RowAnalysis& row) {
  const StepPartition& p = row.total.partition;
  if (!row.overlap_pct) return "  overlap: none (no communication)\n";
  return "  overlap: " + percent(*row.overlap_pct) + " of communication (" + micros(p.communication_hidden) + " of " +
         micros(p.communication) + " us)\n";
}

// Only columns in which something happened; lengths in microseconds.
std::string partition_table(const RowAnalysis& row) {
  std::vector<int> columns;
  for (int i = 0; i < kPartitionClassCount; ++i) {
    if (row.total.partition.classes[static_cast<std::size_t>(i)] != 0) columns.push_back(i);
  }
  Table t;
  std::vector<std::string> head{"step, in us"}, sums{"total"}, shares{""};
  const Nanos length = sum(row.total.partition.classes);
  head.push_back("length");
  sums.push_back(micros(length));
  shares.push_back("");
  for (int c : columns) {
    const Nanos ns = row.total.partition.classes[static_cast<std::size_t>(c)];
    head.push_back(std::string(name_of(static_cast<PartitionClass>(c))));
    sums.push_back(micros(ns));
    shares.push_back(share(ns, length));
  }
  t.rows.push_back(head);
  const std::vector<ForeignStep>& steps = row.partition.steps;
  constexpr std::size_t kMostSteps = 20;
  if (row.partition.has_steps) {
    for (std::size_t i = 0; i < std::min(steps.size(), kMostSteps); ++i) {
      std::vector<std::string> line{steps[i].label + (steps[i].cut        ? " (cut)"
                                                      : steps[i].left_out ? " (left out)"
                                                                          : ""),
                                    micros(steps[i].partition.end - steps[i].partition.begin)};
      for (int c : columns) line.push_back(micros(steps[i].partition.classes[static_cast<std::size_t>(c)]));
      t.rows.push_back(line);
    }
  }
  t.rows.push_back(sums);
  t.rows.push_back(shares);
  std::string out = t.text();
  if (row.partition.has_steps && steps.size() > kMostSteps) {
    out += "  (" + std::to_string(steps.size() - kMostSteps) + " more steps; --json has up to " +
           std::to_string(kMostStepsInJson) + ")\n";
  }
  return out;
}

std::string slowdown_line(const RowAnalysis& row) {
  const std::optional<Slowdown>& s = row.partition.slowdown;
  if (!s) return "";
  char ratio[32];
  std::snprintf(ratio, sizeof ratio, "%.2f", s->ratio());
  return std::string("  compute beside communication takes ") + ratio + " times as long as the same " +
         (row.savings_exact ? "units' alone (" : "kernels alone (") + std::to_string(s->kernels) + " runs of " +
         std::to_string(s->names) + "; an estimate)\n";
}

// Findings speak of the mean step.
std::string findings_text(const RowAnalysis& row) {
  std::string out;
  const auto steps = static_cast<Nanos>(std::max<std::size_t>(1, row.steps_counted));
  const Nanos length = sum(row.total.partition.classes);
  const std::string whose = row.partition.has_steps ? "the step" : "the trace";
  for (const AnalysisFinding& f : row.findings) {
    out += "  finding: " + f.text;
    if (f.ns > 0) out += ": " + micros(f.ns / steps) + " us" + (steps > 1 ? " a step" : "");
    if (f.saved_ns && *f.saved_ns == 0) {
      out += "; hiding it alone would not make " + whose + " shorter";
    } else if (f.saved_ns) {
      out += "; hidden, " + whose + " would be " + (row.savings_exact ? "" : "at most ") + micros(*f.saved_ns / steps) +
             " us (" + share(*f.saved_ns, length) + ") shorter";
    }
    out += "\n";
  }
  return out;
}

std::string causes(const RowAnalysis& row) {
  const ForeignStep& t = row.total;
  std::string out;
  if (t.host_not_issued + t.host_launch > 0) {
    out += "  host: not issued " + micros(t.host_not_issued) + ", launch " + micros(t.host_launch) + " us\n";
  }
  if (t.idle_dependency + t.idle_unknown > 0) {
    out += "  idle: dependency " + micros(t.idle_dependency) + ", unknown " + micros(t.idle_unknown) + " us\n";
  }
  const CriticalStretch& s = row.partition.stretch;
  if (s.end > s.begin) {
    out += "  longest stretch without model work: " + micros(s.end - s.begin) + " us" +
           (s.step.empty() ? "" : " in " + s.step) + ", from " + micros(s.begin - row.partition.whole.partition.begin) +
           " us, mostly " + std::string(name_of(s.largest));
    if (s.unit >= 0) out += " (" + unit_of(s.unit, names_of(row)) + ")";
    out += "\n";
  }
  return out + slowdown_line(row) + findings_text(row);
}

std::string units_table(const RowAnalysis& row) {
  Table t;
  t.rows.push_back(
      {"unit", "pass", "gathers", "us", "reduces", "us", "other", "exposed us", "hidden us", "compute us"});
  for (const UnitMetrics& m : row.partition.units) {
    if (m.unit < 0) continue;
    t.rows.push_back({unit_of(m.unit, names_of(row)), std::string(fsdp::name_of(m.pass)), std::to_string(m.all_gathers),
                      micros(m.all_gather_ns), std::to_string(m.reduce_scatters), micros(m.reduce_scatter_ns),
                      std::to_string(m.other_collectives), micros(m.exposed_ns), micros(m.hidden_ns),
                      micros(m.compute_ns)});
  }
  return t.rows.size() > 1 ? t.text() : "";
}

std::string convention_text(const RowAnalysis& row, Convention c) {
  Table t;
  std::string head;
  if (c == Convention::kTraceLens && row.tracelens) {
    const TraceLensTimes& x = *row.tracelens;
    head = "  by TraceLens (memset is compute; parts add to the span), us:\n";
    t.rows = {{"compute", micros(x.compute), share(x.compute, x.span)},
              {"exposed communication", micros(x.exposed_communication), share(x.exposed_communication, x.span)},
              {"exposed memcpy", micros(x.exposed_memcpy), share(x.exposed_memcpy, x.span)},
              {"idle", micros(x.idle), share(x.idle, x.span)},
              {"span", micros(x.span), ""},
              {"hidden communication", micros(x.hidden_communication), ""}};
  } else if (c == Convention::kNsys && row.nsys) {
    const NsysTimes& x = *row.nsys;
    head = "  by nsys-ai (kernels only, copies are idle), us:\n";
    t.rows = {{"compute only", micros(x.compute_only), share(x.compute_only, x.span)},
              {"nccl only", micros(x.communication_only), share(x.communication_only, x.span)},
              {"overlap", micros(x.overlap), share(x.overlap, x.span)},
              {"idle", micros(x.idle), share(x.idle, x.span)},
              {"span", micros(x.span), ""},
              {"overlap of communication", x.overlap_pct ? percent(*x.overlap_pct) : "none", ""}};
    const RowOverlap& o = row.partition.row_overlap;
    auto of = [](Nanos part, Nanos all) { return all > 0 ? share(part, all) : std::string("none"); };
    t.rows.push_back({"by the recipe nccl_gpu_overlap_trace", "beside communication", "beside compute"});
    t.rows.push_back({"  communication kernels", of(o.communication_communication, o.communication),
                      of(o.communication_compute, o.communication)});
    t.rows.push_back({"  compute kernels", of(o.compute_communication, o.compute), of(o.compute_compute, o.compute)});
  } else if (c == Convention::kHta && row.hta) {
    const HtaResult& x = *row.hta;
    const auto number = [&](std::int64_t v) { return x.nanoseconds ? micros(v) : std::to_string(v); };
    const auto pct = [&](std::int64_t v) {
      return x.kernel_time > 0 ? percent(100.0 * static_cast<double>(v) / static_cast<double>(x.kernel_time))
                               : std::string("none");
    };
    head = std::string("  by HolisticTraceAnalysis") +
           (x.last_step_dropped ? " (last profiler step dropped, its default)" : "") + ", us:\n";
    t.rows = {{"overlap of communication", x.overlap_pct ? percent(*x.overlap_pct) : "none", ""},
              {"idle", number(x.idle), pct(x.idle)},
              {"compute", number(x.compute), pct(x.compute)},
              {"non-compute", number(x.non_compute), pct(x.non_compute)},
              {"kernel time", number(x.kernel_time), ""},
              {"operations", std::to_string(x.operations), ""}};
  }
  return t.rows.empty() ? "" : head + t.text();
}

std::string file_text(const FileAnalysis& f) {
  const TraceFacts& x = f.facts;
  std::string out = printable(x.path) + ": " + std::string(name_of(x.source)) + ", " + std::to_string(x.events) +
                    " events, " + std::to_string(f.operations) +
                    (x.source == TraceSource::kShardscope ? " spans"
                     : x.host_lanes                       ? " operators and transfers of the host"
                                                          : " device operations");
  if (f.rank) out += ", rank " + std::to_string(*f.rank) + (x.world ? " of " + std::to_string(*x.world) : "");
  if (f.rank_from != "file" && f.rank_from != "unknown") out += " (by " + f.rank_from + ")";
  out += "\n";
  if (x.bad.total() > 0) {
    out += "  set aside: " + std::to_string(x.bad.zero_times) + " with zero times, " +
           std::to_string(x.bad.no_duration) + " without duration, " + std::to_string(x.bad.negative_duration) +
           " with negative duration, " + std::to_string(x.bad.not_a_number) + " without a number, " +
           std::to_string(x.bad.impossible_duration) + " that last too long to be true\n";
  }
  if (!f.issued.empty()) {
    Table t;
    t.rows.push_back({"issued by the host", "pass", "all-gathers", "reduce-scatters"});
    for (const IssuedCollectives& i : f.issued) {
      t.rows.push_back({unit_of(i.unit, *f.unit_names), std::string(fsdp::name_of(i.pass)),
                        std::to_string(i.all_gathers), std::to_string(i.reduce_scatters)});
    }
    out += t.text();
  }
  return out;
}

// What the collectives cost: moving data, and waiting for the last rank. Waits below the uncertainty are left out.
std::string waits_text(const Alignment& a) {
  Nanos transfer = 0;
  for (const AlignedCollective& c : a.collectives) transfer += c.transfer;
  const std::vector<Nanos> waited = waits_of_ranks(a);
  std::string out =
      "  transfer (the shortest over ranks) " + micros(transfer) + " us in all; waited for the last to come:";
  for (std::size_t r = 0; r < waited.size(); ++r) {
    out +=
        std::string(r > 0 ? "," : "") + " rank " + std::to_string(a.clocks[r].rank) + " " + micros(waited[r]) + " us";
  }
  return out + "\n";
}

std::string alignment_text(const Alignment& a) {
  if (!a.aligned) return "";
  std::string out = "clocks aligned by the end of " + std::to_string(a.collectives.size()) +
                    " common collectives, uncertainty " + micros(a.uncertainty) + " us\n";
  for (const RankClock& c : a.clocks) {
    char drift[32];
    std::snprintf(drift, sizeof drift, "%.3f", c.drift_ppm);
    out += "  rank " + std::to_string(c.rank) + ": offset " + micros(c.offset) + " us, drift " + drift + " ppm\n";
  }
  if (a.mean_skew) {
    out += "  start skew: mean " + micros(*a.mean_skew) + ", median " + micros(*a.median_skew) + " us; rank " +
           std::to_string(*a.straggler) + " is last in " + std::to_string(a.straggler_last) + " of " +
           std::to_string(a.collectives.size()) + "\n" + waits_text(a);
  } else {
    out += "  start skew: unknown, below the uncertainty\n";
  }
  return out;
}

}  // namespace

std::string to_text(const TraceAnalysis& a) {
  std::string out;
  for (std::size_t i = 0; i < a.files.size(); ++i) {
    out += file_text(a.files[i]);
    for (const RowAnalysis& r : a.rows) {
      if (r.file != i) continue;
      if (a.files[i].facts.source == TraceSource::kShardscope) {
        out += "\nrank " + std::to_string(r.rank.value_or(0)) + "\n";
      } else {
        out += "\n" + (r.several_processes ? "process " + std::to_string(r.process) + ", " : std::string()) +
               (r.device < 0 ? "CPU" : "device " + std::to_string(r.device)) + ": " +
               std::to_string(r.partition.counts.kernels) +
               (r.device < 0 ? " operators and transfers, " : " kernels, ") +
               std::to_string(r.partition.counts.communication) + " collectives, " +
               std::to_string(r.partition.counts.memcpys + r.partition.counts.memsets) + " copies, span " +
               micros(r.partition.whole.partition.end - r.partition.whole.partition.begin) + " us\n";
      }
      out += overlap_line(r) + partition_table(r) + causes(r) + units_table(r) + convention_text(r, a.convention);
    }
    out += "\n";
  }
  if (a.alignment) out += alignment_text(*a.alignment);
  for (const std::string& m : a.messages) out += "note: " + printable(m) + "\n";
  out += "outcome: " + std::string(name_of(a.outcome)) + "\n";
  return out;
}

}  // namespace harness
