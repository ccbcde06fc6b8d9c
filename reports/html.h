// report_html: one page that opens from disk without a network. Made from records alone; the same records, the same
// page.
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "reports/findings.h"
#include "reports/shape.h"

namespace reports {

struct ReportOptions {
  std::string title = "shardscope report";
  std::map<std::string, std::string> defaults;  // settings that the command to re-run a case may leave out
  std::size_t timeline_budget = 1'100'000;      // bytes of all timelines in the page; what is left out is told
  std::size_t data_budget = 1'850'000;          // bytes of all data: timelines get at most what the rest leaves
};

// Everything that came from outside (names, reasons, specs) is data of the page and can neither run nor load anything.
std::string report_html(const std::vector<ReportInput>& inputs, const ReportOptions& options = {});

// The data of the page, as the page reads it.
std::string report_json(const std::vector<ReportInput>& inputs, const ReportOptions& options = {});

// The three questions and their answers for each workload, as plain text; for a terminal.
std::string report_text(const ReportInput& input);

// "shardscope run --model llama ...": quoted for a POSIX shell.
std::string rerun_command(const harness::CaseRecord& c, const std::map<std::string, std::string>& defaults);

}  // namespace reports
