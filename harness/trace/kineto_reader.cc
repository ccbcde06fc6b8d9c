#include "harness/trace/kineto_reader.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <sstream>

#include "fsdp/core/errors.h"
#include "harness/trace/event_reader.h"
#include "harness/trace/host_lanes.h"

namespace harness {
namespace {

using fsdp::Nanos;

// Device records do not say whose they are: ForeignTrace::finish() finds out.
constexpr std::int64_t kProcess = 0;
constexpr std::int64_t kMostRanks = 1 << 20;  // of our own traces
constexpr std::int64_t kMostUnits = 1 << 30;
constexpr std::size_t kMostSpans = 1'500'000;  // likewise: what 2 GB hold

fsdp::Bytes dtype_size(std::string_view t) {
  if (t == "Float" || t == "Int" || t == "float" || t == "int") return 4;
  if (t == "BFloat16" || t == "Half" || t == "Short" || t == "c10::BFloat16" || t == "c10::Half") return 2;
  if (t == "Double" || t == "Long" || t == "double" || t == "long") return 8;
  return t.starts_with("Float8") || t == "Byte" || t == "Char" || t == "Bool" ? 1 : 0;
}

std::int64_t int_or(std::string_view text, std::int64_t fallback) {
  std::int64_t v = 0;
  return to_int(text, v) ? v : fallback;
}

// Trailing digits of "stream 7"; the number of "7".
std::int32_t stream_of(std::string_view tid) {
  std::int64_t v = 0;
  if (to_int(tid, v)) return static_cast<std::int32_t>(v);
  const std::size_t at = tid.find_last_not_of("0123456789");
  return at != std::string_view::npos && to_int(tid.substr(at + 1), v) ? static_cast<std::int32_t>(v) : 0;
}

// A thread's name may be a number or any text.
std::int64_t id_of(std::string_view text) {
  std::int64_t v = 0;
  if (to_int(text, v)) return v;
  std::uint64_t h = 1469598103934665603u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return static_cast<std::int64_t>(h | (std::uint64_t{1} << 63));
}

std::uint32_t add_shape(std::uint32_t h, std::string_view text) {
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  return h;
}

class Reader {
 public:
  explicit Reader(JsonTrace& out) : out_(out), facts_(out.trace.facts) {}

  void event(const RawEvent& e) {
    switch (e.category) {
      case EventCategory::kKernel:
        return device_op(e, OpKind::kKernel);
      case EventCategory::kMemcpy:
        return device_op(e, OpKind::kMemcpy);
      case EventCategory::kMemset:
        return device_op(e, OpKind::kMemset);
      case EventCategory::kLaunch:
        return launch(e);
      case EventCategory::kAnnotation:
        return annotation(e);
      case EventCategory::kSync:
        ++facts_.sync_rows;
        return;
      case EventCategory::kSpan:
        return span(e);
      case EventCategory::kUnknown:
        return unknown(e);
      case EventCategory::kOperator:
      case EventCategory::kOther:
        return;
    }
  }

  // The file once more, for its operators.
  void host_event(const RawEvent& e, HostLanes& lanes) {
    const bool op = e.category == EventCategory::kOperator;
    HostLanes::Event h;
    if ((!op && e.category != EventCategory::kAnnotation) || e.phase != 'X') return;
    if (times_of(e, h.begin, h.end) != Times::kGood || h.end < h.begin || h.end - h.begin > kLongestOperation) return;
    unescape_into(e.name);
    h.name = text_;
    h.process = id_of(e.pid), h.thread = id_of(e.tid);
    for_each_member(e.args, [&](std::string_view key, std::string_view value) {
      if (key == "Input Dims") h.dims = value;
      if (key == "Input type") h.types = value;
    });
    op ? lanes.add_operator(out_.trace, h) : lanes.add_collective(out_.trace, h);
  }
  bool over_gloo() const { return gloo_ranges_ > 0; }

  bool too_many() const { return too_many_; }

  // Ranges that were begun and never ended.
  void close_annotations() {
    for (auto& [thread, open] : open_) {
      for (const Open& o : open) out_.trace.add_annotation(o.name, o.process, thread, o.begin, kNoTime);
    }
    open_.clear();
  }

  // Slices with the categories of our own traces, in a trace that is not ours.
  void spans_are_unknown() {
    for (const auto& [kind, u] : span_times_) {
      const bool device = kind != fsdp::SpanKind::kStep && kind != fsdp::SpanKind::kWait;
      out_.trace.add_unknown(fsdp::name_of(kind), device, u.second, u.first);
    }
  }

  // Of one of our own traces. Indices of units that are far beyond what was recorded are damage or an attack.
  void name_units() {
    const std::size_t units = names_.empty() ? 0 : static_cast<std::size_t>(names_.rbegin()->first) + 1;
    if (units > 16 * out_.own.spans.size() + 1024) {
      throw fsdp::ConfigError("[" + facts_.path + "] is no trace of ours: unit_index " + std::to_string(units - 1) +
                              " in " + std::to_string(out_.own.spans.size()) + " spans; write the trace again");
    }
    out_.own.unit_names.resize(units);
    for (auto& [unit, name] : names_) out_.own.unit_names[static_cast<std::size_t>(unit)] = std::move(name);
    names_.clear();
  }

 private:
  enum class Times { kGood, kNoDuration, kBad };
  Times times_of(const RawEvent& e, Nanos& begin, Nanos& end) {
    Nanos duration = 0;
    bool fraction = false;
    if (!micros_to_nanos(e.ts, begin, &fraction)) return Times::kBad;
    facts_.fractional_times |= fraction;
    if (e.dur.empty()) return Times::kNoDuration;
    const bool good = micros_to_nanos(e.dur, duration) && !__builtin_add_overflow(begin, duration, &end);
    return good ? Times::kGood : Times::kBad;
  }

  void device_op(const RawEvent& e, OpKind kind) {
    if (e.phase != 'X' && e.phase != 0) return;
    DeviceOp op;
    BadRecords& bad = facts_.bad;
    switch (times_of(e, op.begin, op.end)) {
      case Times::kNoDuration:
        ++bad.no_duration;
        return;
      case Times::kBad:
        ++bad.not_a_number;
        return;
      case Times::kGood:
        break;
    }
    if (op.end < op.begin) {
      ++bad.negative_duration;
      return;
    }
    if (op.begin == 0 && op.end == 0) {
      ++bad.zero_times;
      return;
    }
    if (op.end - op.begin > kLongestOperation) {
      ++bad.impossible_duration;
      return;
    }
    op.kind = kind;
    std::int64_t device = int_or(e.pid, 0);
    op.stream = stream_of(e.tid);
    device_args(e.args, op, device);
    unescape_into(e.name);
    op.name = out_.trace.name(text_);
    op.row = out_.trace.row(kProcess, static_cast<std::int32_t>(device));
    out_.trace.add_op(op);
  }

  void device_args(std::string_view args, DeviceOp& op, std::int64_t& device) {
    std::int64_t in_elements = 0, out_elements = 0;
    std::string_view dtype, collective;
    for_each_member(args, [&](std::string_view key, std::string_view value) {
      switch (key.size()) {
        case 3:
          if (key == "Seq") op.sequence = int_or(value, -1);
          break;
        case 4:
          if (key == "grid") op.shape = add_shape(op.shape, value);
          break;
        case 5:
          if (key == "block") op.shape = add_shape(op.shape, value);
          if (key == "bytes") op.bytes = int_or(value, 0);
          if (key == "dtype") dtype = unquoted(value);
          break;
        case 6:
          if (key == "device") device = int_or(value, device);
          if (key == "stream") op.stream = static_cast<std::int32_t>(int_or(value, op.stream));
          break;
        case 10:
          if (key == "Group size") op.group_size = static_cast<std::int32_t>(int_or(value, 0));
          break;
        case 11:
          if (key == "correlation") op.correlation = static_cast<std::uint64_t>(int_or(value, 0));
          break;
        case 13:
          if (key == "In msg nelems") in_elements = int_or(value, 0);
          break;
        case 14:
          if (key == "Out msg nelems") out_elements = int_or(value, 0);
          break;
        case 15:
          if (key == "Collective name") collective = unquoted(value);
          break;
        case 18:
          if (key == "Process Group Name") op.group = out_.trace.name(unquoted(value));
          break;
        default:
          break;
      }
    });
    if (collective.empty()) return;
    op.collective = collective_kind(collective);
    op.bytes = (op.collective == fsdp::SpanKind::kAllGather ? out_elements : in_elements) * dtype_size(dtype);
  }

  void launch(const RawEvent& e) {
    Nanos begin = 0, end = 0;
    if (times_of(e, begin, end) != Times::kGood || end < begin) return;
    std::uint64_t correlation = 0;
    for_each_member(e.args, [&](std::string_view key, std::string_view value) {
      if (key.size() == 11 && key == "correlation") correlation = static_cast<std::uint64_t>(int_or(value, 0));
    });
    const std::uint32_t thread = out_.trace.thread(id_of(e.pid), id_of(e.tid));
    out_.trace.add_call(e.name, id_of(e.pid), correlation, thread, begin, end);
  }

  void unknown(const RawEvent& e) {
    if (e.phase != 'X' && e.phase != 0) return;
    Nanos begin = 0, end = 0;
    const bool timed = times_of(e, begin, end) == Times::kGood && end > begin;
    bool device = names_a_device(e.category_text);
    for_each_member(e.args, [&](std::string_view key, std::string_view) {
      device |= key == "device" || key == "stream" || key == "Stream" || key == "Device" || key == "hlo_op";
    });
    out_.trace.add_unknown(e.category_text.empty() ? "(no category)" : e.category_text, device,
                           timed ? end - begin : 0);
  }

  void annotation(const RawEvent& e) {
    Nanos begin = 0, end = 0;
    const Times times = times_of(e, begin, end);
    if (times == Times::kBad) return;
    const std::int64_t process = id_of(e.pid);
    const std::uint32_t thread = out_.trace.thread(process, id_of(e.tid));
    unescape_into(e.name);
    gloo_ranges_ += text_.starts_with("gloo:");
    if (e.phase == 'B') {
      open_[thread].push_back({text_, begin, process});
    } else if (e.phase == 'E') {
      auto& open = open_[thread];
      if (open.empty()) return;
      out_.trace.add_annotation(open.back().name, process, thread, open.back().begin, begin);
      open.pop_back();
    } else if (times == Times::kNoDuration || end < begin) {
      out_.trace.add_annotation(text_, process, thread, begin, kNoTime);
    } else {
      out_.trace.add_annotation(text_, process, thread, begin, end);
    }
  }

  void span(const RawEvent& e) {
    fsdp::Span s;
    Nanos issued = 0;
    std::string unit;
    if (times_of(e, s.begin, s.end) != Times::kGood) return;
    for (int k = 0; k <= static_cast<int>(fsdp::SpanKind::kStep); ++k) {
      if (e.category_text == fsdp::name_of(static_cast<fsdp::SpanKind>(k))) s.kind = static_cast<fsdp::SpanKind>(k);
    }
    const std::int64_t rank = int_or(e.pid, 1000) / 1000 - 1;
    auto& [slices, ns] = span_times_[s.kind];
    ++slices;
    ns = std::min(kLatestTime, ns + std::clamp<Nanos>(s.end - s.begin, 0, kLatestTime));
    if (rank < 0 || rank >= kMostRanks || !is_near(s.begin) || !is_near(s.end)) {
      ++facts_.bad.not_a_number;
      return;
    }
    if (out_.own.spans.size() >= kMostSpans) too_many_ = true;
    if (too_many_) return;
    s.rank = static_cast<std::int32_t>(rank);
    s.lane = static_cast<fsdp::Lane>(std::clamp<std::int64_t>(int_or(e.tid, 0) / 10, 0, fsdp::kLaneCount - 1));
    for_each_member(e.args, [&](std::string_view key, std::string_view value) {
      if (key == "id") s.id = static_cast<std::uint32_t>(int_or(value, 0));
      if (key == "step") s.step = static_cast<std::int32_t>(int_or(value, 0));
      if (key == "unit_index")
        s.unit = static_cast<fsdp::UnitId>(std::clamp<std::int64_t>(int_or(value, -1), -1, kMostUnits));
      if (key == "bytes") s.bytes = int_or(value, 0);
      if (key == "issued") issued = int_or(value, 0);
      if (key == "unit") unescape(unquoted(value), unit);
      if (key == "pass") s.pass = pass_of(unquoted(value));
      if (key == "waits") waits_of(value, s.waits);
    });
    s.issued = std::clamp(issued, -kLatestTime / 2, kLatestTime / 2);
    if (s.unit >= 0) names_[s.unit] = unit;
    out_.own.spans.push_back(std::move(s));
  }

  // Sums with the time base, and differences of those, fit.
  static bool is_near(Nanos t) { return t >= -kLatestTime / 2 && t <= kLatestTime / 2; }

  static fsdp::Pass pass_of(std::string_view text) {
    for (fsdp::Pass p : {fsdp::Pass::kForward, fsdp::Pass::kBackward, fsdp::Pass::kOptimizer}) {
      if (text == fsdp::name_of(p)) return p;
    }
    return fsdp::Pass::kNone;
  }

  static void waits_of(std::string_view list, std::vector<std::uint32_t>& out) {
    const char* p = list.data();
    const char* const end = p + list.size();
    while (p < end) {
      std::uint32_t v = 0;
      const auto [next, error] = std::from_chars(p, end, v);
      if (error == std::errc()) out.push_back(v);
      p = error == std::errc() ? next : p + 1;
    }
  }

  void unescape_into(std::string_view raw) {
    if (raw.find('\\') == std::string_view::npos) {
      text_.assign(raw);
    } else {
      unescape(raw, text_);
    }
  }

  JsonTrace& out_;
  TraceFacts& facts_;
  struct Open {
    std::string name;
    Nanos begin;
    std::int64_t process;
  };
  std::string text_;
  std::map<std::uint32_t, std::vector<Open>> open_;
  std::map<fsdp::UnitId, std::string> names_;  // of the units of our own spans
  std::map<fsdp::SpanKind, std::pair<std::int64_t, Nanos>> span_times_;
  std::int64_t gloo_ranges_ = 0;
  bool too_many_ = false;
};

void read_members(const std::map<std::string, std::string>& members, TraceFacts& facts) {
  auto find = [&](const char* key) -> std::string_view {
    const auto it = members.find(key);
    return it == members.end() ? std::string_view() : std::string_view(it->second);
  };
  if (find("schema").starts_with("\"shardscope-trace/")) facts.source = TraceSource::kShardscope;
  facts.has_base_time =
      to_int(find("baseTimeNanoseconds"), facts.base_time) && facts.base_time >= 0 && facts.base_time <= kLatestTime;
  if (!facts.has_base_time) facts.base_time = 0;
  std::string distributed(find("distributedInfo"));
  distributed.append(kScanPadding, '\0');
  for_each_member(std::string_view(distributed).substr(0, distributed.size() - kScanPadding),
                  [&](std::string_view key, std::string_view value) {
                    std::int64_t v = 0;
                    if (key == "rank" && to_int(value, v) && v >= 0) facts.rank = static_cast<int>(v);
                    if (key == "world_size" && to_int(value, v) && v > 0) facts.world = static_cast<int>(v);
                    if (key == "backend") facts.backend = std::string(unquoted(value));
                  });
}

// Of our own traces.
OwnRun read_run(const std::map<std::string, std::string>& members) {
  OwnRun run;
  const auto found = members.find("metadata");
  if (found == members.end()) return run;
  std::string text = found->second;
  const std::size_t size = text.size();
  text.append(kScanPadding, '\0');
  for_each_member(std::string_view(text).substr(0, size), [&](std::string_view key, std::string_view value) {
    if (key == "clock") run.one_clock = unquoted(value) == "one";
    if (key != "regathered") return;
    run.regathered.emplace();
    std::istringstream units{std::string(unquoted(value))};
    for (fsdp::UnitId u; units >> u;) run.regathered->insert(u);
  });
  return run;
}

// No device, and ranks of FSDP over Gloo: the host is what computes and communicates.
void read_host_lanes(JsonTrace& out, Reader& reader) {
  HostLanes lanes;
  EventReader events(out.trace.facts.path);
  events.keep_operators();
  events.read([&](const RawEvent& e) { reader.host_event(e, lanes); });
  lanes.finish(out.trace);
}

}  // namespace

JsonTrace read_json_trace(const std::string& path) {
  JsonTrace out;
  TraceFacts& facts = out.trace.facts;
  facts.path = path;
  EventReader events(path);
  Reader reader(out);
  events.read([&](const RawEvent& e) { reader.event(e); });
  reader.close_annotations();
  facts.text_bytes = events.bytes();
  facts.events = events.events();
  facts.defects = events.defects();
  facts.partial = facts.defects.any();
  read_members(events.members(), facts);
  if (facts.source == TraceSource::kShardscope) {
    if (reader.too_many()) {
      throw fsdp::ConfigError("[" + path + "] has more than " + std::to_string(kMostSpans) +
                              " spans; trace fewer steps at a time");
    }
    reader.name_units();
    out.own.run = read_run(events.members());
    // Times far from another stay so: what is beyond belongs to no trace.
    facts.base_time = std::min(facts.base_time, kLatestTime / 2);
    for (fsdp::Span& s : out.own.spans)
      s.begin += facts.base_time, s.end += facts.base_time, s.issued += facts.base_time;
  } else {
    reader.spans_are_unknown();
    out.own = {};
    const bool over_gloo = out.trace.rows().empty() && facts.fsdp_annotations > 0 && reader.over_gloo();
    if (over_gloo && std::filesystem::is_regular_file(path)) read_host_lanes(out, reader);  // a pipe is read once
  }
  out.trace.finish();
  return out;
}

}  // namespace harness
