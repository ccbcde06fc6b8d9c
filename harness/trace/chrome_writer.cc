#include "harness/trace/chrome_writer.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>

#include "fsdp/core/errors.h"
#include "harness/analysis/partition.h"
#include "harness/trace/json_text.h"
#include "harness/trace/output_file.h"

namespace harness {
namespace {

using fsdp::Lane;
using fsdp::Nanos;
using fsdp::Span;
using fsdp::SpanKind;

constexpr int kPartitionTid = 90;

std::string_view short_name(SpanKind k) {
  switch (k) {
    case SpanKind::kAllGather:
      return "AG";
    case SpanKind::kReduceScatter:
      return "RS";
    case SpanKind::kAllReduce:
      return "AR";
    case SpanKind::kOtherCollective:
      return "collective";
    case SpanKind::kWait:
      return "wait";
    case SpanKind::kMemoryWait:
      return "memory wait";
    case SpanKind::kCopy:
      return "copy";
    case SpanKind::kOptimizer:
      return "optimizer";
    case SpanKind::kStep:
      return "step";
    case SpanKind::kCompute:
      return "";
  }
  return "?";
}

std::string unit_name(fsdp::UnitId unit, const std::vector<std::string>& names) {
  if (unit < 0) return {};
  const auto i = static_cast<std::size_t>(unit);
  return i < names.size() && !names[i].empty() ? names[i] : "unit " + std::to_string(unit);
}

void append_word(std::string& out, std::string_view word) {
  if (word.empty()) return;
  if (!out.empty()) out += ' ';
  out += word;
}

std::int64_t pid_of(int rank) { return 1000 * (std::int64_t{rank} + 1); }

// One line of the file and where it goes in time. Ties: what comes first in `order`, longer slices before shorter ones.
struct Line {
  Nanos ts;
  int order;
  Nanos end;
  std::string text;
};

class Writer {
 public:
  Writer(const std::vector<Span>& spans, const std::vector<std::string>& names) : spans_(spans), names_(names) {
    base_ = 0;
    for (const Span& s : spans) base_ = &s == spans.data() ? s.begin : std::min(base_, s.begin);
  }

  Nanos base() const { return base_; }

  std::vector<Line> lines() {
    std::map<int, std::vector<const Span*>> ranks;
    for (const Span& s : spans_) ranks[s.rank].push_back(&s);
    for (auto& [rank, spans] : ranks) add_rank(rank, spans);
    std::stable_sort(lines_.begin(), lines_.end(), [](const Line& a, const Line& b) {
      return std::tuple(a.ts, a.order, -a.end) < std::tuple(b.ts, b.order, -b.end);
    });
    return std::move(lines_);
  }
  std::string metadata_events() const { return metadata_; }

 private:
  void add_rank(int rank, std::vector<const Span*>& spans) {
    name_thread(rank, -1, "process_name", "rank " + std::to_string(rank), rank);
    std::sort(spans.begin(), spans.end(), [](const Span* a, const Span* b) {
      return std::tuple(a->begin, -a->end, a->id) < std::tuple(b->begin, -b->end, b->id);
    });
    std::map<Lane, std::vector<std::vector<Nanos>>> open;  // lane -> sub-lane -> ends of the slices around
    std::unordered_map<std::uint32_t, std::pair<const Span*, int>> placed;
    for (const Span* s : spans) {
      const int tid = 10 * static_cast<int>(s->lane) + place(open[s->lane], *s);
      if (threads_.emplace(rank, tid).second) name_lane(rank, tid, s->lane);
      placed[s->id] = {s, tid};
      add_slice(*s, tid);
    }
    for (const Span* s : spans) {
      for (std::uint32_t id : s->waits) {
        const auto it = placed.find(id);
        if (it != placed.end() && is_collective(it->second.first->kind)) add_arrow(it->second, placed.at(s->id));
      }
    }
    add_partition(rank, spans);
  }

  // The first sub-lane in which the span crosses no other: it lies inside, or after, what is there.
  static int place(std::vector<std::vector<Nanos>>& lanes, const Span& s) {
    for (std::size_t i = 0;; ++i) {
      if (i == lanes.size()) lanes.emplace_back();
      std::vector<Nanos>& ends = lanes[i];
      while (!ends.empty() && ends.back() <= s.begin) ends.pop_back();
      if (!ends.empty() && ends.back() < s.end) continue;
      ends.push_back(s.end);
      return std::min<int>(static_cast<int>(i), 9);
    }
  }

  void add_slice(const Span& s, int tid) {
    std::string t = open_slice(s.rank, tid, s.begin, s.end, name_of(s.kind), span_name(s, names_));
    t += ",\"args\":{\"id\":" + std::to_string(s.id) + ",\"step\":" + std::to_string(s.step);
    // Tools that take rows with a stream for device work find it.
    if (s.lane != Lane::kHost) t += ",\"stream\":" + std::to_string(static_cast<int>(s.lane) + 1);
    if (s.unit != fsdp::kNoUnit) {
      t += ",\"unit\":";
      append_json_string(t, unit_name(s.unit, names_));
      t += ",\"unit_index\":" + std::to_string(s.unit);
    }
    if (s.pass != fsdp::Pass::kNone) (t += ",\"pass\":\"").append(name_of(s.pass)) += '"';
    if (s.bytes != 0) t += ",\"bytes\":" + std::to_string(s.bytes);
    t += ",\"issued\":" + std::to_string(s.issued - base_);
    if (!s.waits.empty()) {
      t += ",\"waits\":[";
      for (std::uint32_t id : s.waits) t.append(std::to_string(id)).append(1, ',');
      t.back() = ']';
    }
    lines_.push_back({s.begin, 0, s.end, t + "}}"});
  }

  std::string open_slice(int rank, int tid, Nanos begin, Nanos end, std::string_view category,
                         std::string_view name) const {
    std::string t = "{\"ph\":\"X\",\"pid\":" + std::to_string(pid_of(rank)) + ",\"tid\":" + std::to_string(tid);
    t += ",\"ts\":";
    append_micros(t, begin - base_);
    t += ",\"dur\":";
    append_micros(t, std::max(Nanos{0}, end - begin));
    (t += ",\"cat\":\"").append(category) += "\",\"name\":";
    append_json_string(t, name);
    return t;
  }

  // Bound inside both slices, and never back in time, which viewers drop: leaves the collective in its last nanosecond,
  // arrives where the waiting span begins, or in it where that began before the collective had ended.
  void add_arrow(const std::pair<const Span*, int>& from, const std::pair<const Span*, int>& to) {
    const Span &a = *from.first, &b = *to.first;
    if (a.begin >= a.end || b.begin >= b.end || a.begin >= b.end) return;
    const Nanos arrives = std::min(std::max(b.begin, a.end - 1), b.end - 1);
    const std::string id = std::to_string(++arrows_);
    auto end = [&](const char* phase, const Span& s, int tid, Nanos ts, const char* more) {
      std::string t = std::string("{\"ph\":\"") + phase + "\",\"pid\":" + std::to_string(pid_of(s.rank)) +
                      ",\"tid\":" + std::to_string(tid) + ",\"ts\":";
      append_micros(t, ts - base_);
      lines_.push_back({ts, 1, ts, t + ",\"cat\":\"wait\",\"name\":\"wait\",\"id\":" + id + more + "}"});
    };
    end("s", a, from.second, std::min(a.end - 1, arrives), "");
    end("f", b, to.second, arrives, ",\"bp\":\"e\"");
  }

  void add_partition(int rank, const std::vector<const Span*>& spans) {
    std::vector<Span> own;
    bool has_step = false;
    for (const Span* s : spans) own.push_back(*s), has_step |= s->kind == SpanKind::kStep;
    if (!has_step) return;
    name_thread(rank, kPartitionTid, "thread_name", "partition of the step", 1);
    for (const StepPartition& step : partition_steps(own)) {
      for (const PartitionPiece& p : step.pieces) {
        std::string name(name_of(p.cls));
        append_word(name, unit_name(p.unit, names_));
        lines_.push_back({p.begin, 0, p.end, open_slice(rank, kPartitionTid, p.begin, p.end, "partition", name) + "}"});
      }
    }
  }

  void name_lane(int rank, int tid, Lane lane) {
    std::string name(name_of(lane));
    if (tid % 10 != 0) name += " (crossing " + std::to_string(tid % 10) + ")";
    // Compute on top, then the partition, the communication lanes, the host.
    name_thread(rank, tid, "thread_name", name, lane == Lane::kHost ? 90 + tid : (lane == Lane::kCompute ? 0 : tid));
  }

  void name_thread(int rank, int tid, const char* what, const std::string& name, int sort) {
    const bool process = tid < 0;
    const std::string who = "{\"ph\":\"M\",\"pid\":" + std::to_string(pid_of(rank)) +
                            ",\"tid\":" + std::to_string(process ? 0 : tid) + ",\"name\":\"";
    metadata_ += who + what + "\",\"args\":{\"name\":";
    append_json_string(metadata_, name);
    metadata_ += "}},\n" + who + (process ? "process_sort_index" : "thread_sort_index") +
                 "\",\"args\":{\"sort_index\":" + std::to_string(sort) + "}},\n";
  }

  const std::vector<Span>& spans_;
  const std::vector<std::string>& names_;
  Nanos base_ = 0;
  std::vector<Line> lines_;
  std::string metadata_;
  std::set<std::pair<int, int>> threads_;
  std::uint64_t arrows_ = 0;
};

}  // namespace

std::string span_name(const Span& span, const std::vector<std::string>& unit_names) {
  std::string out(short_name(span.kind));
  if (span.kind == SpanKind::kStep) return out + " " + std::to_string(span.step);
  append_word(out, unit_name(span.unit, unit_names));
  if (span.pass != fsdp::Pass::kNone && span.kind != SpanKind::kOptimizer) append_word(out, name_of(span.pass));
  return out.empty() ? std::string(name_of(span.kind)) : out;
}

void write_chrome_trace(const std::string& path, const std::vector<Span>& spans,
                        const std::vector<std::string>& unit_names, const TraceMetadata& metadata, bool follow) {
  Writer writer(spans, unit_names);
  const std::vector<Line> lines = writer.lines();
  OutputFile file(path, follow);
  std::string head = "{\"schema\":\"shardscope-trace/1\",\"displayTimeUnit\":\"ns\",\"baseTimeNanoseconds\":" +
                     std::to_string(writer.base()) + ",\n\"metadata\":{";
  for (const auto& [key, value] : metadata) {
    if (head.back() != '{') head += ',';
    append_json_string(head, key);
    head += ':';
    append_json_string(head, value);
  }
  head += "},\n\"traceEvents\":[\n" + writer.metadata_events();
  // The metadata events end in a comma: a last marker closes the list whatever follows.
  file.write(head);
  std::string block;
  for (const Line& l : lines) {
    block += l.text;
    block += ",\n";
    if (block.size() > (1u << 20)) file.write(block), block.clear();
  }
  file.write(block + "{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"trace_end\",\"args\":{}}\n]}\n");
  file.close();
}

}  // namespace harness
