#include "reports/timeline.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <set>

#include "fsdp/core/errors.h"
#include "harness/analysis/alignment.h"
#include "harness/analysis/partition.h"
#include "harness/analysis/savings.h"
#include "reports/json_writer.h"

namespace reports {
namespace {

using fsdp::Nanos;
using fsdp::Span;

// One case may not take the page for itself: beyond this many spans of a rank, the rank is left out.
constexpr std::size_t kSpansPerRank = 60'000;
// A saving plays the step again, once for each unit and pass: not for steps beyond this many spans.
constexpr std::size_t kSpansForSavings = 6'000, kSavingsShown = 12;

std::vector<Span> spans_of(const harness::CaseRecord& c, int rank) {
  std::vector<Span> spans;
  std::copy_if(c.spans.begin(), c.spans.end(), std::back_inserter(spans),
               [&](const Span& s) { return s.rank == rank; });
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  return spans;
}

// Spans that were read from elsewhere may have no step; they are drawn all the same, without pieces.
std::vector<harness::StepPartition> partitions(const std::vector<Span>& spans) {
  try {
    return harness::partition_steps(spans);
  } catch (const fsdp::Error&) {
    return {};
  }
}

void write_pieces(JsonWriter& json, const std::vector<harness::PartitionPiece>& pieces) {
  json.key("pieces").begin_array();
  for (const auto& p : pieces) {
    json.value(static_cast<int>(p.cls)).value(p.unit).value(static_cast<int>(p.pass)).value(p.end - p.begin);
  }
  json.end_array();
}

void write_lane(JsonWriter& json, const std::vector<Span>& spans, fsdp::Lane lane, Nanos origin) {
  const auto here = [&](const Span& s) { return s.lane == lane && s.kind != fsdp::SpanKind::kStep && s.end > s.begin; };
  if (std::none_of(spans.begin(), spans.end(), here)) return;
  json.begin_array().value(static_cast<int>(lane)).begin_array();
  Nanos before = origin;
  for (const Span& s : spans) {
    if (!here(s)) continue;
    json.value(static_cast<int>(s.kind)).value(s.unit).value(static_cast<int>(s.pass));
    json.value(s.begin - before).value(s.end - s.begin).value(s.bytes).value(s.begin - s.issued);
    before = s.begin;
  }
  json.end_array().end_array();
}

void write_rank(JsonWriter& json, const harness::CaseRecord& c, int rank) {
  const std::vector<Span> spans = spans_of(c, rank);
  if (spans.empty() || spans.size() > kSpansPerRank) return;
  const auto steps = partitions(spans);
  Nanos begin = spans.front().begin, end = begin;
  for (const Span& s : spans) end = std::max(end, s.end);
  const auto step = std::find_if(steps.begin(), steps.end(), [&](const auto& s) { return s.step == c.partition_step; });
  const bool known = step != steps.end();
  if (known) begin = step->begin, end = std::max(step->end, begin);
  json.begin_object().field("rank", rank).field("begin", begin).field("end", end);
  write_pieces(json, known ? step->pieces : std::vector<harness::PartitionPiece>());
  json.key("lanes").begin_array();
  for (int lane = 0; lane < fsdp::kLaneCount; ++lane) write_lane(json, spans, static_cast<fsdp::Lane>(lane), begin);
  json.end_array().end_object();
}

void write_savings(JsonWriter& json, const harness::CaseRecord& c) {
  json.key("savings").begin_array();
  const std::vector<Span> spans = spans_of(c, c.partition_rank);
  if (!spans.empty() && spans.size() <= kSpansForSavings) {
    const auto steps = partitions(spans);
    const auto step =
        std::find_if(steps.begin(), steps.end(), [&](const auto& s) { return s.step == c.partition_step; });
    std::vector<harness::Saving> savings;
    if (step != steps.end()) savings = harness::savings_of(spans, *step);
    if (savings.size() > kSavingsShown) savings.resize(kSavingsShown);
    for (const harness::Saving& s : savings) {
      json.value(s.unit).value(static_cast<int>(s.pass)).value(static_cast<int>(s.collective));
      json.value(s.exposed_ns).value(s.saved_ns);
    }
  }
  json.end_array();
}

void write_unit_metrics(JsonWriter& json, const std::vector<harness::UnitMetrics>& metrics) {
  json.key("units").begin_array();
  for (const auto& m : metrics) {
    json.value(m.unit).value(static_cast<int>(m.pass));
    json.value(m.all_gathers).value(m.reduce_scatters).value(m.other_collectives);
    json.value(m.all_gather_bytes).value(m.reduce_scatter_bytes).value(m.all_gather_ns).value(m.reduce_scatter_ns);
    json.value(m.exposed_ns).value(m.hidden_ns).value(m.compute_ns).value(m.copy_ns);
  }
  json.end_array();
}

}  // namespace

std::vector<int> ranks_with_spans(const harness::CaseRecord& c) {
  std::set<int> ranks;
  for (const Span& s : c.spans) ranks.insert(s.rank);
  return {ranks.begin(), ranks.end()};
}

std::optional<Nanos> clock_uncertainty(const harness::CaseRecord& c) {
  const std::vector<int> ranks = ranks_with_spans(c);
  if (ranks.size() < 2) return std::nullopt;
  std::vector<std::vector<harness::Sighting>> sightings;
  for (const int rank : ranks) {
    auto& own = sightings.emplace_back();
    for (const Span& s : spans_of(c, rank)) {
      if (fsdp::is_collective(s.kind)) own.push_back({s.begin, s.end, s.kind, "", -1});
    }
  }
  const harness::Alignment a = harness::align(ranks, sightings, 1);
  return a.aligned ? std::optional(a.uncertainty) : std::nullopt;
}

std::string timeline_json(const harness::CaseRecord& c, const std::vector<int>& ranks) {
  JsonWriter json;
  json.begin_object().key("ranks").begin_array();
  for (const int rank : ranks) write_rank(json, c, rank);
  json.end_array();
  write_unit_metrics(json, c.unit_metrics);
  write_savings(json, c);
  json.end_object();
  return json.text();
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::array<unsigned, 3> b{};
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t j = 0; j < n; ++j) b[j] = static_cast<unsigned char>(bytes[i + j]);
    const unsigned word = (b[0] << 16) | (b[1] << 8) | b[2];
    for (std::size_t j = 0; j < 4; ++j) out += j <= n ? kDigits[(word >> (18 - 6 * j)) & 63] : '=';
  }
  return out;
}

std::string packed(std::string_view text) {
  constexpr int kLevel = 5;  // within 3 % of the best level's size at a third of its time
  uLongf size = compressBound(static_cast<uLong>(text.size()));
  std::string out(size, '\0');
  const int rc = compress2(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(text.data()),
                           static_cast<uLong>(text.size()), kLevel);
  if (rc != Z_OK) throw fsdp::Error("[report] zlib could not pack a timeline; free some memory and run report again");
  out.resize(size);
  return base64(out);
}

Timelines pack_timelines(const std::vector<harness::CaseRecord>& cases, const std::vector<std::size_t>& order,
                         std::size_t budget) {
  Timelines t;
  t.packed.resize(cases.size());
  t.clock_uncertainty.resize(cases.size());
  std::size_t used = 0;
  for (const std::size_t i : order) {
    const harness::CaseRecord& c = cases[i];
    if (c.spans.empty() && c.unit_metrics.empty()) continue;
    if (!c.spans.empty()) ++t.with_spans;
    if (used >= budget) continue;
    std::string text = packed(timeline_json(c, {c.partition_rank}));
    if (used + text.size() > budget) continue;
    used += text.size();
    if (!c.spans.empty()) ++t.embedded;
    t.packed[i] = std::move(text);
  }
  for (const std::size_t i : order) {
    if (t.packed[i].empty() || cases[i].spans.empty()) continue;
    const std::vector<int> ranks = ranks_with_spans(cases[i]);
    // Every rank's spans pack about as well as the first one's: no need to try what cannot fit.
    const std::size_t guess = t.packed[i].size() * std::max<std::size_t>(1, ranks.size());
    if (ranks.size() > 1 && used - t.packed[i].size() + guess * 3 / 4 > budget) continue;
    if (ranks.size() > 1) {
      std::string text = packed(timeline_json(cases[i], ranks));
      if (used - t.packed[i].size() + text.size() > budget) continue;
      used += text.size() - t.packed[i].size();
      t.packed[i] = std::move(text);
    }
    ++t.all_ranks;
    t.clock_uncertainty[i] = clock_uncertainty(cases[i]);
  }
  return t;
}

}  // namespace reports
