#include "harness/trial/messages.h"

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "fsdp/core/errors.h"

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
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  return text == "inf" ? infinity : -infinity;
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
  const int value = j.get<int>();
  if (value < 0 || value >= count)
    throw fsdp::CommError("[trial] a span holds the unknown code " + std::to_string(value));
  return static_cast<Enum>(value);
}
fsdp::Span span_from(const Json& j, fsdp::Nanos base, int rank) {
  fsdp::Span s;
  s.rank = rank;
  s.id = j.at(0);
  s.step = j.at(1);
  s.lane = enum_from<fsdp::Lane>(j.at(2), fsdp::kLaneCount);
  s.kind = enum_from<fsdp::SpanKind>(j.at(3), static_cast<int>(fsdp::SpanKind::kStep) + 1);
  s.unit = j.at(4);
  s.pass = enum_from<fsdp::Pass>(j.at(5), static_cast<int>(fsdp::Pass::kOptimizer) + 1);
  s.issued = base + j.at(6).get<fsdp::Nanos>();
  s.begin = s.issued + j.at(7).get<fsdp::Nanos>();
  s.end = s.begin + j.at(8).get<fsdp::Nanos>();
  s.bytes = j.at(9);
  if (j.size() > 10) s.waits = j.at(10).get<std::vector<std::uint32_t>>();
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
  r.rank = j.at("rank");
  r.losses = numbers_from(j.at("losses"));
  r.gradient_square_sums = numbers_from(j.at("gradient_square_sums"));
  const Json& peak = j.at("peak");
  r.peak.total = peak.at("total");
  r.peak.at_peak = peak.at("at_peak");
  r.peak.where.unit = peak.at("unit");
  r.peak.where.pass = enum_from<fsdp::Pass>(peak.at("pass"), static_cast<int>(fsdp::Pass::kOptimizer) + 1);
  r.category_peaks = j.at("category_peaks");
  r.peak_cause = j.at("peak_cause");
  for (const Json& s : j.at("spans")) r.spans.push_back(span_from(s, j.at("spans_base"), r.rank));
  r.traced_step_ns = j.at("traced_step_ns").get<std::vector<fsdp::Nanos>>();
  r.collectives_per_step = j.at("collectives_per_step");
  r.communicated_bytes_per_step = j.at("communicated_bytes_per_step");
  const auto prefetch = j.at("prefetch").get<std::array<std::int64_t, 4>>();
  r.prefetch = {prefetch[0], prefetch[1], prefetch[2], prefetch[3]};
  r.warnings = j.at("warnings").get<std::vector<std::string>>();
  r.environment = j.at("environment").get<std::map<std::string, std::string>>();
  return r;
}

RankEvent event_from(const Json& j) {
  RankEvent e;
  const std::string kind = j.at("event");
  if (kind == "ready") {
    e.kind = RankEvent::Kind::kReady;
    e.pid = j.at("pid");
  } else if (kind == "repetition") {
    e.kind = RankEvent::Kind::kRepetition;
    e.ns = j.at("ns");
    e.cpu_ns = j.value("cpu_ns", fsdp::Nanos{0});
  } else if (kind == "result") {
    e.kind = RankEvent::Kind::kResult;
    e.result = result_from(j);
    e.ns = j.value("ns", fsdp::Nanos{0});
  } else if (kind == "failed") {
    e.kind = RankEvent::Kind::kFailed;
    e.status = status_from(j.at("status")).value_or(Status::kCrashed);
    e.reason = j.at("reason");
    e.cause = j.value("cause", "");
    e.held = j.value("held", fsdp::Bytes{-1});
    e.where = j.value("where", "");
  } else if (kind == "where") {
    e.kind = RankEvent::Kind::kWhere;
    e.where = j.at("where");
  } else {
    throw fsdp::CommError("[trial] a rank sent the unknown event '" + kind + "'");
  }
  return e;
}
}  // namespace

std::string to_json_line(const RankJob& job) {
  return line_of({{"settings", Json::parse(to_json(job.settings))},
                  {"rank", job.rank},
                  {"world", job.world},
                  {"local_rank", job.local_rank},
                  {"shared_memory_fd", job.shared_memory_fd},
                  {"master_host", job.master_host},
                  {"trace", job.trace}});
}

RankJob rank_job_from_json(const std::string& line) {
  return parse_line(line, "job", [](const Json& j) {
    RankJob job;
    job.settings = settings_from_json(j.at("settings").dump());
    job.rank = j.at("rank");
    job.world = j.at("world");
    job.local_rank = j.at("local_rank");
    job.shared_memory_fd = j.at("shared_memory_fd");
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
