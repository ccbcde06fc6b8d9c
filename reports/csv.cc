#include "reports/csv.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "reports/text.h"

namespace reports {
namespace {

class Row {
 public:
  explicit Row(std::string& out) : out_(out) {}
  void add(const std::string& text) {
    if (!first_) out_ += ',';
    first_ = false;
    out_ += csv_field(guarded_text(text));
  }
  void add(std::int64_t v) { add(fmt::format("{}", v)); }
  void add(double v) { add(std::isfinite(v) ? fmt::format("{}", v) : std::string()); }
  void add(bool v) { add(std::string(v ? "true" : "false")); }
  template <typename T>
  void add(const std::optional<T>& v) {
    v ? add(*v) : add(std::string());
  }
  void end() { out_ += "\r\n"; }

 private:
  std::string& out_;
  bool first_ = true;
};

void add_header(const harness::SweepRecord& sweep, std::string& out) {
  Row row(out);
  for (const char* name : {"case", "status", "reason"}) row.add(std::string(name));
  for (const auto& axis : sweep.axes) row.add(axis.first);
  for (const char* name : {"units",
                           "largest_unit_bytes",
                           "step_ns",
                           "step_mad_ns",
                           "step_ci_low_ns",
                           "step_ci_high_ns",
                           "repetitions",
                           "tokens_per_s",
                           "peak_bytes",
                           "peak_cause",
                           "traced_step_ns",
                           "compute_ns",
                           "overlapped_ns",
                           "exposed_all_gather_forward_ns",
                           "exposed_all_gather_backward_ns",
                           "exposed_reduce_scatter_ns",
                           "exposed_other_ns",
                           "copy_ns",
                           "host_ns",
                           "memory_wait_ns",
                           "optimizer_ns",
                           "idle_ns",
                           "overlap_pct",
                           "collectives",
                           "communicated_bytes",
                           "observer_ratio",
                           "emulated",
                           "predicted"}) {
    row.add(std::string(name));
  }
  row.end();
}

void add_case(const harness::SweepRecord& sweep, const harness::CaseRecord& c, std::string& out) {
  Row row(out);
  row.add(c.id);
  row.add(std::string(harness::name_of(c.status)));
  row.add(c.reason);
  for (const auto& axis : sweep.axes) {
    const std::string* value = setting(c, axis.first);
    row.add(value ? *value : std::string());
  }
  row.add(c.units);
  row.add(c.largest_unit_bytes);
  row.add(c.step_ns);
  row.add(c.step_mad_ns);
  row.add(c.step_ci_low_ns);
  row.add(c.step_ci_high_ns);
  row.add(c.repetitions);
  row.add(c.tokens_per_s);
  row.add(c.peak_bytes);
  row.add(c.peak_cause);
  row.add(c.traced_step_ns);
  for (std::size_t i = 0; i < harness::kPartitionClassCount; ++i) {
    row.add(c.partition ? std::optional<std::int64_t>((*c.partition)[i]) : std::nullopt);
  }
  row.add(c.overlap_pct);
  row.add(c.collectives);
  row.add(c.communicated_bytes);
  row.add(c.observer_ratio);
  row.add(c.emulated);
  row.add(c.predicted);
  row.end();
}

bool number(const std::string& text) {
  char* end = nullptr;
  const double v = std::strtod(text.c_str(), &end);
  return !text.empty() && end == text.c_str() + text.size() && std::isfinite(v);
}

}  // namespace

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string guarded_text(const std::string& text) {
  const bool risky = !text.empty() && std::strchr("=+-@\t\r'", text.front()) != nullptr;
  return risky && !number(text) ? "'" + text : text;
}

std::string cases_csv(const harness::SweepRecord& sweep, const std::vector<harness::CaseRecord>& cases) {
  std::string out;
  add_header(sweep, out);
  for (const harness::CaseRecord& c : cases) add_case(sweep, c, out);
  return out;
}

}  // namespace reports
