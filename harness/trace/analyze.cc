#include "harness/trace/analyze.h"

#include <algorithm>
#include <map>

#include "fsdp/core/errors.h"
#include "harness/trace/analyze_parts.h"
#include "harness/trace/chrome_writer.h"
#include "harness/trace/foreign_perfetto.h"
#include "harness/trace/imbalance.h"
#include "harness/trace/kineto_reader.h"
#include "harness/trace/nsys_reader.h"
#include "harness/trace/own_rows.h"

namespace harness {
namespace {

using fsdp::Nanos;
using fsdp::Span;

constexpr std::size_t kMostSightings = 1 << 20;  // of collectives kept for the alignment, per rank

struct Loaded {
  ForeignTrace trace;
  OwnTrace own;
  bool is_own() const { return trace.facts.source == TraceSource::kShardscope; }
};

Loaded load(const std::string& path) {
  if (is_sqlite_file(path)) return {read_nsys_trace(path), {}};
  JsonTrace json = read_json_trace(path);
  return {std::move(json.trace), std::move(json.own)};
}

class Analyzer {
 public:
  explicit Analyzer(const AnalyzeOptions& options) : options_(options) {
    out_.convention = options.convention;
    if (!options.ranks.empty() && options.ranks.size() != options.paths.size()) {
      throw fsdp::ConfigError("[--rank] " + std::to_string(options.ranks.size()) + " ranks for " +
                              std::to_string(options.paths.size()) + " files; give one for each file");
    }
  }

  TraceAnalysis run() {
    for (std::size_t i = 0; i < options_.paths.size(); ++i) {
      Loaded l = load(options_.paths[i]);
      identify(l, i);
      if (l.is_own()) {
        own_rows(l, i);
      } else {
        foreign_rows(l, i);
      }
      judge(l, i);
    }
    if (options_.paths.size() > 1) align_ranks();
    compare_ranks();
    if (!options_.perfetto.empty()) write_perfetto();
    return std::move(out_);
  }

 private:
  void identify(const Loaded& l, std::size_t i) {
    FileAnalysis f;
    f.facts = l.trace.facts;
    if (!options_.ranks.empty()) {
      f.rank = options_.ranks[i];
      f.rank_from = "flag";
    } else if (f.facts.rank) {
      f.rank = f.facts.rank;
      f.rank_from = "file";
    } else if (const std::optional<int> named = rank_in_name(f.facts.path); named && !l.is_own()) {
      f.rank = named;
      f.rank_from = "name";
    } else {
      f.rank_from = "unknown";
    }
    f.unit_names =
        std::make_shared<const std::vector<std::string>>(l.is_own() ? l.own.unit_names : l.trace.unit_names());
    const std::int64_t records = static_cast<std::int64_t>(l.trace.operations()) + f.facts.bad.total();
    f.suspect = f.facts.bad.total() * 100 > records;
    f.operations = l.is_own() ? l.own.spans.size() : l.trace.operations();
    const bool nsys = f.facts.source == TraceSource::kNsys;
    if (f.rank_from == "unknown" && !l.is_own() && !nsys) {
      message(f.facts.path,
              "the rank is unknown (no distributedInfo, none in the file's name): taken as 0; say it with --rank");
    }
    if (!l.is_own() && !nsys) {
      const int rank = f.rank.value_or(0);
      for (const FileAnalysis& other : out_.files) {
        if (other.facts.source != TraceSource::kKineto || other.rank.value_or(0) != rank) continue;
        throw fsdp::ConfigError("[" + other.facts.path + "] and [" + f.facts.path + "] are both rank " +
                                std::to_string(rank) + "; give one file of each rank, or say their ranks with --rank");
      }
    }
    out_.files.push_back(std::move(f));
    sightings_.emplace_back();
  }

  void message(const std::string& path, const std::string& text) {
    out_.messages.push_back(options_.paths.size() > 1 ? "[" + path + "] " + text : text);
  }
  void not_clean(TraceOutcome o) { out_.outcome = std::max(out_.outcome, o); }

  // --- traces made elsewhere ---

  void foreign_rows(Loaded& l, std::size_t file) {
    ForeignTrace& t = l.trace;
    if (t.facts.host_lanes && options_.convention != Convention::kExclusive) {
      throw fsdp::ConfigError(
          "[" + t.facts.path +
          "] holds no device, and those tools count a device's kernels; use --convention exclusive");
    }
    std::vector<std::size_t> order(t.rows().size());
    for (std::size_t r = 0; r < order.size(); ++r) order[r] = r;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(t.rows()[a].device, t.rows()[a].process) < std::pair(t.rows()[b].device, t.rows()[b].process);
    });
    std::vector<RowAnalysis> rows(t.rows().size());
    sweep(t, file, rows);
    for (const std::size_t r : order) {
      if (rows[r].partition.whole.operations == 0) continue;
      finish_row(rows[r], out_.files[file]);
      out_.rows.push_back(std::move(rows[r]));
    }
  }

  void begin_row(const ForeignTrace& t, std::size_t file, RowAnalysis& row, const DeviceRow& of) const {
    row.file = file;
    row.rank = t.facts.several_processes ? std::nullopt : out_.files[file].rank;
    row.device = of.device;
    row.process = of.process;
    row.unit_names = out_.files[file].unit_names;
    row.several_processes = t.facts.several_processes;
  }

  void sweep(ForeignTrace& t, std::size_t file, std::vector<RowAnalysis>& rows) {
    std::vector<HtaClass> classes;
    for (const std::string& name : t.names()) classes.push_back(hta_class(name));
    std::optional<ForeignSweep> sweep;
    std::optional<HtaSweep> hta;
    UnclassifiedKernels kernels;
    std::size_t current = 0;
    auto close = [&] {
      if (!sweep) return;
      RowAnalysis& row = rows[current];
      row.partition = sweep->finish();
      if (hta) row.hta = hta->finish();
      for (const HostSync& s : row.partition.host_syncs) row.call_names.push_back(t.names()[s.name]);
      add_up(row);
      row.unclassified = unclassified_of_row(t, current, row.total);
      kernels.append(t, sum(row.total.partition.classes), row.unclassified);
      kernels = {};
    };
    t.for_each_op([&](const DeviceOp& op) {
      if (!sweep || op.row != current) {
        close();
        current = op.row;
        begin_row(t, file, rows[current], t.rows()[current]);
        sweep.emplace(t.annotations().steps(), t.step_labels(), t.allocations());
        sweep->of_process(t.rows()[current].process, t.calls());
        if (options_.convention == Convention::kHta) {
          hta.emplace(HtaOptions{options_.hta_round, options_.hta_include_last_step}, t.annotations().steps(), classes,
                      t.facts.fractional_times);
        }
      }
      sweep->add(op);
      kernels.add(op);
      if (hta) hta->add(op);
      if (op.cls == OpClass::kCommunication && options_.paths.size() > 1) {
        std::vector<Sighting>& seen = sightings_[file];
        if (seen.size() < kMostSightings && t.facts.base_time <= kLatestTime - std::abs(op.end)) {
          seen.push_back({t.facts.base_time + op.begin, t.facts.base_time + op.end, op.collective,
                          op.group == kNoName ? std::string() : t.names()[op.group], op.sequence});
        }
      }
    });
    close();
  }

  void add_up(RowAnalysis& row) const {
    const ForeignPartition& p = row.partition;
    row.total = p.has_steps ? p.sum_of_steps(options_.include_cut_step) : p.whole;
    row.steps_counted = static_cast<std::size_t>(std::count_if(p.steps.begin(), p.steps.end(), [&](const auto& s) {
      return ForeignPartition::included(s, options_.include_cut_step);
    }));
    row.overlap_pct = overlap_of(row.total);
  }

  void finish_row(RowAnalysis& row, const FileAnalysis& file) {
    const ForeignPartition& p = row.partition;
    if (options_.convention == Convention::kTraceLens) row.tracelens = tracelens_times(p);
    if (options_.convention == Convention::kNsys) row.nsys = nsys_times(p);
    row.findings = findings_of(row);
    const std::string& path = file.facts.path;
    const std::string where = row_label(row) + ": ";
    if (!p.has_steps) message(path, where + "no step boundaries: everything is one window");
    if (p.has_steps && p.before.operations > 0) message(path, where + before_steps_text(row));
    for (const ForeignStep& s : p.steps) say_of_step(s, path, where);
    for (const Unclassified& u : row.unclassified) say_unclassified(u, path, where);
    if (p.counts.copy_engine > 0) {
      message(path, where + std::to_string(p.counts.copy_engine) +
                        " copies to other devices launched inside ranges of collectives count as these (copy engines)");
    }
    if (p.counts.without_launch > 0) {
      not_clean(TraceOutcome::kPartial);
      message(path, where + std::to_string(p.counts.without_launch) + " of " + std::to_string(p.whole.operations) +
                        " operations have no launch record: causes of the gaps before them are unknown");
    }
  }

  void say_of_step(const ForeignStep& s, const std::string& path, const std::string& where) {
    if (s.cut && !options_.include_cut_step) {
      message(path, where + s.label + " was cut (its marker never ends) and is left out; --include-cut-step counts it");
    } else if (s.left_out) {
      message(path, where + s.label + " launched no device work and is left out");
    }
  }

  void say_unclassified(const Unclassified& u, const std::string& path, const std::string& where) {
    if (u.matters) not_clean(TraceOutcome::kPartial);
    message(path, where + u.text);
  }

  std::string row_label(const RowAnalysis& row) const {
    std::string label = row.rank ? "rank " + std::to_string(*row.rank) + ", " : "";
    if (row.several_processes) label = "process " + std::to_string(row.process) + ", ";
    return label + (row.device < 0 ? "CPU" : "device " + std::to_string(row.device));
  }

  static std::optional<double> overlap_of(const ForeignStep& s) {
    const Nanos all = s.partition.communication;
    if (all == 0) return std::nullopt;
    return 100.0 * static_cast<double>(s.partition.communication_hidden) / static_cast<double>(all);
  }

  void own_rows(Loaded& l, std::size_t file) {
    std::vector<RowAnalysis> rows;
    try {
      rows = harness::own_rows(l.own, options_, file);
    } catch (const fsdp::Error& e) {
      throw fsdp::ConfigError("[" + l.trace.facts.path + "] is no usable trace of ours: " + e.what());
    }
    for (RowAnalysis& row : rows) {
      row.unit_names = out_.files[file].unit_names;
      row.overlap_pct = overlap_of(row.total);
      row.findings = findings_of(row);
      out_.rows.push_back(std::move(row));
    }
    out_.files[file].operations = l.own.spans.size();
    own_spans_.insert(own_spans_.end(), std::make_move_iterator(l.own.spans.begin()),
                      std::make_move_iterator(l.own.spans.end()));
    own_units_ = l.own.unit_names;
    own_run_ = l.own.run;
  }

  // --- what to say about a file as a whole ---

  void judge(const Loaded& l, std::size_t i) {
    FileAnalysis& f = out_.files[i];
    const TraceFacts& facts = f.facts;
    for (const std::string& note : facts.notes) message(facts.path, note);
    if (facts.partial) not_clean(TraceOutcome::kPartial);
    if (facts.defects.any()) {
      message(facts.path, "the text is damaged at " + facts.defects.first +
                              "; events lost: " + std::to_string(facts.defects.lost_events) +
                              (facts.defects.truncated ? ", and the end is missing" : ""));
    }
    if (facts.bad.total() > 0) {
      message(facts.path, std::to_string(facts.bad.total()) + " device records are impossible and were set aside" +
                              (f.suspect ? ": more than 1 %, the trace is suspect" : ""));
      if (f.suspect) not_clean(TraceOutcome::kPartial);
    }
    if (l.is_own()) {
      if (f.operations == 0) no_device(facts.path, f);
      return;
    }
    Nanos length = 0;
    for (const RowAnalysis& row : out_.rows) {
      if (row.file == i) length = std::max(length, row.partition.whole.length());
    }
    f.unclassified = unclassified_of_file(l.trace, length);
    for (const Unclassified& u : f.unclassified) say_unclassified(u, facts.path, "");
    if (f.operations == 0) {
      f.issued = issued_collectives(l.trace.annotations());
      return no_device(facts.path, f);
    }
    if (facts.host_lanes) {
      f.issued = issued_collectives(l.trace.annotations());
      message(facts.path,
              "no device in this trace: operators of the host stand for compute, Gloo's ranges for communication in "
              "flight");
    }
    judge_communication(i);
    if (facts.several_processes) {
      message(facts.path,
              "the file holds several processes: a row for each of their devices; the rank it names is one's");
    }
    if (facts.optimizer_annotations == 0) {
      message(facts.path, "no Optimizer.step annotation: the optimizer is inside compute");
    }
  }

  void no_device(const std::string& path, const FileAnalysis& f) {
    not_clean(TraceOutcome::kNoDeviceActivity);
    const bool unknown =
        std::any_of(f.unclassified.begin(), f.unclassified.end(), [](const auto& u) { return u.matters; });
    message(path, std::string("no device activity in this trace") +
                      (unknown            ? " that is known"
                       : f.issued.empty() ? ": it holds host events only"
                                          : ": it holds host events only; what the host issued is listed"));
  }

  void judge_communication(std::size_t i) {
    const TraceFacts& facts = out_.files[i].facts;
    std::int64_t communication = 0, copies = 0, engines = 0;
    for (const RowAnalysis& row : out_.rows) {
      if (row.file != i) continue;
      communication += row.partition.counts.communication;
      copies += row.partition.counts.annotated_copies;
      engines += row.partition.counts.copy_engine;
    }
    if (communication == 0 && facts.collective_annotations > 0 && facts.world != 1) {
      not_clean(TraceOutcome::kPartial);
      message(facts.path,
              "no communication kernels found, though the host called collectives: kernel-less collectives are "
              "not recognisable in this file");
    }
    if (facts.fsdp_annotations > 0 && copies > 0) {
      message(facts.path, "FSDP copies recognised by annotation: " + std::to_string(copies));
    } else if (facts.fsdp_annotations > 0) {
      message(facts.path, std::string("FSDP copies are not recognised: none ") +
                              (engines > 0 ? "but collectives " : "") + "was launched inside an FSDP annotation");
    }
  }

  void align_ranks() {
    std::vector<int> ranks;
    std::vector<std::vector<Sighting>> seen;
    Nanos resolution = 1;
    for (std::size_t i = 0; i < out_.files.size(); ++i) {
      if (out_.files[i].facts.source == TraceSource::kShardscope) return;  // one clock already
      if (out_.files[i].facts.source == TraceSource::kKineto && !out_.files[i].facts.fractional_times)
        resolution = 1000;
      ranks.push_back(out_.files[i].rank.value_or(0));
      seen.push_back(std::move(sightings_[i]));
      std::stable_sort(seen.back().begin(), seen.back().end(),
                       [](const auto& a, const auto& b) { return a.begin < b.begin; });
    }
    out_.alignment = align(ranks, seen, resolution);
    if (!out_.alignment->aligned) {
      not_clean(TraceOutcome::kPartial);
      out_.messages.push_back(out_.alignment->reason + "; each rank is reported on its own clock");
    }
  }

  // Ranks that come late make the others wait: what is exposed then is no slow network.
  void compare_ranks() {
    std::optional<Alignment> a = out_.alignment;
    if (options_.paths.size() == 1 && !own_spans_.empty()) a = align_own(own_spans_, own_run_);
    const std::optional<Imbalance> i = a ? imbalance_of(*a, out_.rows) : std::nullopt;
    if (!i) return;
    out_.imbalance_pct = i->pct;
    if (i->pct >= 1) out_.messages.push_back(imbalance_text(*i));
  }

  // A second pass over the files, now that the clocks are known.
  void write_perfetto() {
    if (!own_spans_.empty()) {
      write_chrome_trace(options_.perfetto, own_spans_, own_units_);
      return;
    }
    if (out_.alignment && !out_.alignment->aligned) {
      out_.messages.push_back("[" + options_.perfetto +
                              "] is not written: ranks on unknown clocks are not merged; give one file");
      return;
    }
    ForeignPerfetto out(options_.perfetto);
    for (std::size_t i = 0; i < options_.paths.size(); ++i) {
      Loaded l = load(options_.paths[i]);
      ForeignTrace& t = l.trace;
      Nanos shift = t.facts.base_time;
      if (out_.alignment && out_.alignment->aligned) shift -= out_.alignment->clocks[i].offset;
      std::optional<ForeignSweep> sweep;
      std::uint32_t current = 0;
      t.for_each_op([&](const DeviceOp& op) {
        if (!sweep || op.row != current) {
          if (sweep) sweep->finish();
          current = op.row;
          RowAnalysis row;
          begin_row(t, i, row, t.rows()[current]);
          out.begin_row(row_label(row), shift);
          sweep.emplace(t.annotations().steps(), t.step_labels(), t.allocations(),
                        [&](PartitionClass cls, Nanos begin, Nanos end, const DeviceOp* owner) {
                          out.add_piece(cls, begin, end,
                                        owner == nullptr ? "" : unit_name(owner->unit, t.unit_names()));
                        });
          sweep->of_process(t.rows()[current].process, t.calls());
        }
        sweep->add(op);
        out.add(op, t.names()[op.name], unit_name(op.unit, t.unit_names()));
      });
      if (sweep) sweep->finish();
    }
    out.close();
  }

  const AnalyzeOptions& options_;
  TraceAnalysis out_;
  std::vector<std::vector<Sighting>> sightings_;
  std::vector<Span> own_spans_;
  std::vector<std::string> own_units_;
  OwnRun own_run_;
};

}  // namespace

std::string_view name_of(TraceOutcome o) {
  return o == TraceOutcome::kClean ? "clean" : (o == TraceOutcome::kPartial ? "partial" : "no_device_activity");
}

int exit_code_of(TraceOutcome o) { return o == TraceOutcome::kClean ? 0 : 1; }

TraceAnalysis analyze_traces(const AnalyzeOptions& options) { return Analyzer(options).run(); }

}  // namespace harness
