#include "harness/cli/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>

#include "fsdp/core/escape.h"
#include "fsdp/core/utf8.h"
#include "harness/cli/safe_output.h"
#include "harness/sweep/quantities.h"
#include "harness/sweep/text.h"

namespace harness::cli {
namespace {

std::string place_text(std::size_t at, std::size_t total) {
  return fmt::format("[{:>{}}/{}]", at, std::to_string(total).size(), total);
}

std::string left_text(fsdp::Nanos left) {
  const std::int64_t seconds = left / 1'000'000'000;
  if (seconds < 100) return fmt::format("about {} s left", seconds);
  if (seconds < 100 * 60) return fmt::format("about {} min left", (seconds + 30) / 60);
  return fmt::format("about {:.1f} h left", static_cast<double>(seconds) / 3600);
}

}  // namespace

std::string counts_text(const SweepProgress& p) {
  std::string out;
  for (const auto& [status, n] : p.by_status)
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", n, name_of(status));
  return out;
}

std::string finished_line(const SweepProgress& p, const SweepCase& c, const CaseRecord& r) {
  std::string out = fmt::format("{} {}   {}", place_text(p.finished, p.total), axes_text(c.axes), name_of(r.status));
  if (r.step_ns) out += "   " + format_nanos(*r.step_ns);
  if (r.peak_bytes) out += "   " + format_bytes(*r.peak_bytes);
  if (!measured(r.status)) out += "   " + r.reason;
  return out;
}

std::string running_line(const SweepProgress& p, const SweepCase& c) {
  std::string out = fmt::format("{} {} ...", place_text(p.finished + 1, p.total), axes_text(c.axes));
  if (!p.by_status.empty()) out += "   " + counts_text(p);
  if (p.remaining() > 0) out += "   " + left_text(p.remaining());
  return out;
}

ProgressLine::ProgressLine() : terminal_(::isatty(STDERR_FILENO) == 1) {
  winsize size{};
  if (terminal_ && ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) width_ = size.ws_col;
}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::clear() {
  if (shown_) write_control(std::cerr, "\r\033[K");
  shown_ = false;
}

void ProgressLine::begin_case(const SweepProgress& p, const SweepCase& c) {
  if (!terminal_) return;
  clear();
  std::cerr << fsdp::utf8_prefix(fsdp::one_line(running_line(p, c)), width_ - 1) << std::flush;
  shown_ = true;
}

void ProgressLine::end_case(const SweepProgress& p, const SweepCase& c, const CaseRecord& r) {
  clear();
  std::cerr << finished_line(p, c, r) << std::endl;
}

}  // namespace harness::cli
