#include "harness/trace/cupti_session.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>
#include <tuple>

namespace harness {
namespace {

using fsdp::Nanos;
using fsdp::Span;

using Work = std::tuple<int, fsdp::UnitId, fsdp::Pass, fsdp::SpanKind>;
using Times = std::map<Work, std::pair<Nanos, Nanos>>;  // first begin, last end

Times collectives_of(const std::vector<Span>& spans) {
  Times out;
  for (const Span& s : spans) {
    if (!fsdp::is_collective(s.kind)) continue;
    const auto [place, fresh] = out.try_emplace({s.step, s.unit, s.pass, s.kind}, s.begin, s.end);
    if (fresh) continue;
    place->second.first = std::min(place->second.first, s.begin);
    place->second.second = std::max(place->second.second, s.end);
  }
  return out;
}

// Of the collectives that both know.
std::string ratio(const Times& cupti, const Times& events) {
  Nanos by_cupti = 0, by_events = 0;
  for (const auto& [work, times] : events) {
    const auto found = cupti.find(work);
    if (found == cupti.end()) continue;
    by_cupti += found->second.second - found->second.first;
    by_events += times.second - times.first;
  }
  if (by_events <= 0) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", static_cast<double>(by_cupti) / static_cast<double>(by_events));
  return text;
}

}  // namespace

CuptiReport report_cupti(const CuptiTrace& trace, const std::vector<Span>& device_spans) {
  CuptiReport out;
  Nanos overhead = 0;
  for (const auto& [begin, end] : trace.overheads) overhead += end - begin;
  out.fields["machine.cupti.operations"] = std::to_string(trace.spans.size());
  out.fields["machine.cupti.clock_error_ns"] = std::to_string(trace.clock_error);
  out.fields["machine.cupti.clock_drift_ns"] = std::to_string(trace.clock_drift);
  out.fields["machine.cupti.overhead_ns"] = std::to_string(overhead);
  if (const std::string r = ratio(collectives_of(trace.spans), collectives_of(device_spans)); !r.empty())
    out.fields["machine.cupti.collectives_to_events"] = r;
  out.warnings = trace.notes;
  return out;
}

std::unique_ptr<CuptiSession> CuptiSession::wanted(const std::function<const char*(const char*)>& variable) {
  const char* asked = variable("SHARDSCOPE_CUPTI");
  const std::string_view text = asked == nullptr ? "" : asked;
  if (text.empty() || text == "0") return nullptr;
  std::unique_ptr<CuptiSession> session(new CuptiSession);
  session->why_not_ = other_profiler(variable);
  if (!session->why_not_.empty()) return session;
  if (const auto library = load_cupti(session->why_not_))
    session->collector_ = std::make_unique<CuptiCollector>(*library);
  return session;
}

fsdp::RangeSink* CuptiSession::tags(fsdp::RangeSink* next) { return collector_ ? &collector_->tags(next) : next; }

void CuptiSession::begin() {
  if (!collector_) return;
  why_not_ = collector_->start();
}

void CuptiSession::step() {
  if (collector_) collector_->sample_clock();
}

CuptiReport CuptiSession::finish(int rank, const std::vector<Span>& device_spans) {
  if (collector_ && collector_->collecting()) return report_cupti(collector_->stop(rank), device_spans);
  CuptiReport out;
  if (!why_not_.empty()) out.warnings.push_back("the GPU was not traced: " + why_not_);
  return out;
}

}  // namespace harness
