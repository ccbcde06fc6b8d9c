#include "harness/trial/messages.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "fsdp/core/errors.h"
#include "harness/sweep/quantities.h"
#include "harness/trial/line_numbers.h"

namespace harness {
namespace {
using Json = nlohmann::json;

// JSON has no infinities and no NaN, and a diverging loss has: they travel as text.
Json number(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return x;
}
double number_from(const Json& j) {
  if (!j.is_string()) return j.get<double>();
  const auto text = j.get<std::string>();
  const double infinity = std::numeric_limits<double>::infinity();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf" || text == "-inf") return text == "inf" ? infinity : -infinity;
  throw fsdp::CommError("[trial] \"" + text.substr(0, 40) + "\" is no number");
}
Json numbers(const std::vector<double>& values) {
  Json j = Json::array();
  for (const double x : values) j.push_back(number(x));
  return j;
}
std::vector<double> numbers_from(const Json& j) {
  std::vector<double> values;
  for (const Json& x : j) values.push_back(number_from(x));
  return values;
}

// One document, no line break inside. Bytes that are not UTF-8 (a module path of a user's file) are replaced.
std::string line_of(const Json& j) { return j.dump(-1, ' ', false, Json::error_handler_t::replace); }

template <typename Parse>
auto parse_line(const std::string& line, const char* what, Parse parse) {
  try {
    return parse(Json::parse(line));
  } catch (const Json::exception& e) {
    throw fsdp::CommError(std::string("[trial] a ") + what + " cannot be read (" + e.what() +
                          "): " + line.substr(0, 200));
  }
}

// These are the ranges of a line's numbers: sums of them stay inside 64 bits.
constexpr std::int64_t kMostCount = std::int64_t{1} << 53;
constexpr Range kRanks{0, kMostInt}, kUnits{fsdp::kNoUnit, kMostInt}, kCounts{0, kMostCount};
constexpr Range kIds{0, std::numeric_limits<std::uint32_t>::max()}, kDescriptors{-1, 1 << 20};
constexpr Range kLengths{0, std::int64_t{1} << 56};                               // ns: two years
constexpr Range kShifts{-kLengths.high, kLengths.high};                           // ns
constexpr Range kInstants{-(std::int64_t{1} << 61), std::int64_t{1} << 61};       // ns
constexpr Range kSizes{0, std::int64_t{1} << 60}, kSizesOrNone{-1, kSizes.high};  // bytes

std::int64_t whole(const Json& j, const char* what, Range r) { return whole_number(j, "trial", what, r); }
int whole_int(const Json& j, const char* what, Range r) { return static_cast<int>(whole(j, what, r)); }
template <class T>
std::vector<T> wholes(const Json& list, const char* what, Range r) {
  std::vector<T> out;
  for (const Json& j : list) out.push_back(static_cast<T>(whole(j, what, r)));
  return out;
}
fsdp::BytesByCategory sizes(const Json& list, const char* what) {
  const auto read = wholes<fsdp::Bytes>(list, what, kSizes);
  fsdp::BytesByCategory out{};
  if (read.size() != out.size())
    throw fsdp::CommError("[trial] " + std::string(what) + " are " + std::to_string(read.size()) + ", not " +
                          std::to_string(out.size()));
  std::copy(read.begin(), read.end(), out.begin());
  return out;
}

// A span as an array: id, step, lane, kind, unit, pass, then issued, begin, end as differences, bytes, waits.
// A traced repetition has thousands; the rank is the result's.
Json to_json_array(const fsdp::Span& s, fsdp::Nanos base) {
  Json j = Json::array({s.id, s.step, static_cast<int>(s.lane), static_cast<int>(s.kind), s.unit,
                        static_cast<int>(s.pass), s.issued - base, s.begin - s.issued, s.end - s.begin, s.bytes});
  if (!s.waits.empty()) j.push_back(s.waits);
  return j;
}
template <typename Enum>
Enum enum_from(const Json& j, int count) {
  return static_cast<Enum>(whole_int(j, "a code of a span", {0, count - 1}));
}
fsdp::Span span_from(const Json& j, fsdp::Nanos base, int rank) {
  fsdp::Span s;
  s.rank = rank;
  s.id = static_cast<std::uint32_t>(whole(j.at(0), "the id of a span", kIds));
  s.step = whole_int(j.at(1), "the step of a span", {0, kMostInt});
  s.lane = enum_from<fsdp::Lane>(j.at(2), fsdp::kLaneCount);
  s.kind = enum_from<fsdp::SpanKind>(j.at(3), static_cast<int>(fsdp::SpanKind::kStep) + 1);
  s.unit = whole_int(j.at(4), "the unit of a span", kUnits);
  s.pass = enum_from<fsdp::Pass>(j.at(5), static_cast<int>(fsdp::Pass::kOptimizer) + 1);
  s.issued = base + whole(j.at(6), "the issue of a span", kShifts);
  s.begin = s.issued + whole(j.at(7), "the begin of a span", kShifts);
  s.end = s.begin + whole(j.at(8), "the length of a span", kLengths);
  s.bytes = whole(j.at(9), "the bytes of a span", kSizes);
  if (j.size() > 10) s.waits = wholes<std::uint32_t>(j.at(10), "what a span waits for", kIds);
  return s;
}

Json result_json(const RankResult& r) {
  const fsdp::Nanos base = r.spans.empty() ? 0 : r.spans.front().issued;
  Json spans = Json::array();
  for (const fsdp::Span& s : r.spans) spans.push_back(to_json_array(s, base));
  return {{"rank", r.rank},
          {"losses", numbers(r.losses)},
          {"gradient_square_sums", numbers(r.gradient_square_sums)},
          {"peak",
           {{"total", r.peak.total},
            {"at_peak", r.peak.at_peak},
            {"unit", r.peak.where.unit},
            {"pass", r.peak.where.pass}}},
          {"category_peaks", r.category_peaks},
          {"peak_cause", r.peak_cause},
          {"spans_base", base},
          {"spans", spans},
          {"traced_step_ns", r.traced_step_ns},
          {"collectives_per_step", r.collectives_per_step},
          {"communicated_bytes_per_step", r.communicated_bytes_per_step},
          {"prefetch", {r.prefetch.hits, r.prefetch.misses, r.prefetch.unused, r.prefetch.order_changes}},
          {"warnings", r.warnings},
          {"environment", r.environment}};
}
RankResult result_from(const Json& j) {
  RankResult r;
  r.rank = whole_int(j.at("rank"), "rank", kRanks);
  r.losses = numbers_from(j.at("losses"));
  r.gradient_square_sums = numbers_from(j.at("gradient_square_sums"));
  const Json& peak = j.at("peak");
  r.peak.total = whole(peak.at("total"), "the peak", kSizes);
  r.peak.at_peak = sizes(peak.at("at_peak"), "sizes at the peak");
  r.peak.where.unit = whole_int(peak.at("unit"), "the unit of the peak", kUnits);
  r.peak.where.pass = enum_from<fsdp::Pass>(peak.at("pass"), static_cast<int>(fsdp::Pass::kOptimizer) + 1);
  r.category_peaks = sizes(j.at("category_peaks"), "peaks of categories");
  r.peak_cause = j.at("peak_cause");
  const fsdp::Nanos base = whole(j.at("spans_base"), "the base of spans", kInstants);
  for (const Json& s : j.at("spans")) r.spans.push_back(span_from(s, base, r.rank));
  r.traced_step_ns = wholes<fsdp::Nanos>(j.at("traced_step_ns"), "the length of a step", kLengths);
  r.collectives_per_step = whole(j.at("collectives_per_step"), "the count of collectives", kCounts);
  r.communicated_bytes_per_step = whole(j.at("communicated_bytes_per_step"), "communicated bytes", kSizes);
  const Json& prefetch = j.at("prefetch");
  const auto count = [&](std::size_t i) { return whole(prefetch.at(i), "a count of prefetches", kCounts); };
  r.prefetch = {count(0), count(1), count(2), count(3)};
  r.warnings = j.at("warnings").get<std::vector<std::string>>();
  r.environment = j.at("environment").get<std::map<std::string, std::string>>();
  return r;
}

RankEvent event_from(const Json& j) {
  RankEvent e;
  const std::string kind = j.at("event");
  if (kind == "ready") {
    e.kind = RankEvent::Kind::kReady;
    e.pid = whole(j.at("pid"), "pid", {1, kMostInt});
  } else if (kind == "repetition") {
    e.kind = RankEvent::Kind::kRepetition;
    e.ns = whole(j.at("ns"), "ns", kLengths);
    e.cpu_ns = whole(j.value("cpu_ns", Json(0)), "cpu_ns", kLengths);
  } else if (kind == "result") {
    e.kind = RankEvent::Kind::kResult;
    e.result = result_from(j);
    e.ns = whole(j.value("ns", Json(0)), "ns", kLengths);
  } else if (kind == "failed") {
    e.kind = RankEvent::Kind::kFailed;
    e.status = status_from(j.at("status")).value_or(Status::kCrashed);
    e.reason = j.at("reason");
    e.cause = j.value("cause", "");
    e.held = whole(j.value("held", Json(-1)), "held", kSizesOrNone);
    e.where = j.value("where", "");
  } else if (kind == "where") {
    e.kind = RankEvent::Kind::kWhere;
    e.where = j.at("where");
  } else {
    throw fsdp::CommError("[trial] a rank sent the unknown event '" + kind + "'");
  }
  return e;
}
// A word that this version does not know comes from another one: it would be lost.
void refuse_unknown(const Json& job, const std::vector<std::string>& known) {
  for (const auto& [key, value] : job.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      throw fsdp::CommError("[trial] a job holds the unknown word '" + key + "'; nearest: " + nearest(key, known));
  }
}
}  // namespace

std::string to_json_line(const RankJob& job) {
  Json settings = Json::object(), files = Json::array();
  for (const auto& [name, text] : all_settings(job.settings)) settings[name] = text;
  for (const auto& f : files_of(job.settings)) files.push_back({f->path, f->text});
  return line_of({{"settings", std::move(settings)},
                  {"files", std::move(files)},
                  {"rank", job.rank},
                  {"world", job.world},
                  {"local_rank", job.local_rank},
                  {"shared_memory_fd", job.shared_memory_fd},
                  {"master_host", job.master_host},
                  {"trace", job.trace}});
}

RankJob rank_job_from_json(const std::string& line) {
  return parse_line(line, "job", [](const Json& j) {
    refuse_unknown(j, {"settings", "files", "rank", "world", "local_rank", "shared_memory_fd", "master_host", "trace"});
    RankJob job;
    Files files;
    for (const auto& [path, text] : j.at("files").get<SettingTexts>())
      files.push_back(std::make_shared<FileText>(FileText{path, text}));
    FileTexts texts(std::move(files), {}, FileTexts::Disk::kClosed);
    for (const auto& [name, text] : j.at("settings").items())
      apply_setting(job.settings, name, text.get<std::string>(), texts);
    job.world = whole_int(j.at("world"), "world", {1, kMostInt});
    job.rank = whole_int(j.at("rank"), "rank", {0, job.world - 1});
    job.local_rank = whole_int(j.at("local_rank"), "local_rank", {-1, kMostInt});
    job.shared_memory_fd = whole_int(j.at("shared_memory_fd"), "shared_memory_fd", kDescriptors);
    job.master_host = j.at("master_host");
    job.trace = j.value("trace", true);
    return job;
  });
}

std::string to_json_line(RankCommand command) {
  switch (command) {
    case RankCommand::kRepeat:
      return R"({"do":"repeat"})";
    case RankCommand::kTrace:
      return R"({"do":"trace"})";
    case RankCommand::kFinish:
      return R"({"do":"finish"})";
    case RankCommand::kReport:
      return R"({"do":"report"})";
  }
  return {};
}

RankCommand rank_command_from_json(const std::string& line) {
  return parse_line(line, "command", [](const Json& j) {
    const std::string text = j.at("do");
    if (text == "repeat") return RankCommand::kRepeat;
    if (text == "trace") return RankCommand::kTrace;
    if (text == "finish") return RankCommand::kFinish;
    if (text == "report") return RankCommand::kReport;
    throw fsdp::CommError("[trial] the launcher sent the unknown command '" + text + "'");
  });
}

std::string to_json_line(const RankEvent& e) {
  switch (e.kind) {
    case RankEvent::Kind::kReady:
      return line_of({{"event", "ready"}, {"pid", e.pid}});
    case RankEvent::Kind::kRepetition:
      return line_of({{"event", "repetition"}, {"ns", e.ns}, {"cpu_ns", e.cpu_ns}});
    case RankEvent::Kind::kResult: {
      Json j = result_json(e.result);
      j["event"] = "result";
      j["ns"] = e.ns;
      return line_of(j);
    }
    case RankEvent::Kind::kFailed:
      return line_of({{"event", "failed"},
                      {"status", std::string(name_of(e.status))},
                      {"reason", e.reason},
                      {"cause", e.cause},
                      {"held", e.held},
                      {"where", e.where}});
    case RankEvent::Kind::kWhere:
      return line_of({{"event", "where"}, {"where", e.where}});
  }
  return {};
}

RankEvent rank_event_from_json(const std::string& line) { return parse_line(line, "message of a rank", event_from); }

}  // namespace harness
