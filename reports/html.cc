#include "reports/html.h"

#include <algorithm>
#include <utility>

#include "fsdp/core/escape.h"
#include "reports/page_template.h"
#include "reports/web_assets.h"

namespace reports {
namespace {

void add_answer(std::string& out, const Answer& a) {
  out += a.question + "\n  " + plain(a.sentence) + "\n";
  for (const Sentence& note : a.notes) out += "  " + plain(note) + "\n";
}

}  // namespace

std::string report_html(const std::vector<ReportInput>& inputs, const ReportOptions& options) {
  return filled_page(kPageHtml, options.title, report_json(inputs, options), kPageJs);
}

std::string report_text(const ReportInput& input) {
  const SweepShape shape = shape_of(input);
  std::string out;
  for (const Workload& workload : shape.workloads) {
    const Findings f = find(input, shape, workload);
    if (!workload.label.empty()) out += "[" + workload.label + "]\n";
    for (const Answer* a : {&f.wrap, &f.slow, &f.fit}) add_answer(out, *a);
  }
  return out;
}

std::string rerun_command(const harness::CaseRecord& c, const std::map<std::string, std::string>& defaults) {
  std::string out = "shardscope run";
  for (const auto& [name, value] : c.settings) {
    const auto standard = defaults.find(name);
    if (value.empty() || (standard != defaults.end() && standard->second == value)) continue;
    std::string flag = name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    out += " --" + fsdp::shell_quoted(flag) + " " + fsdp::shell_quoted(value);
  }
  return out;
}

}  // namespace reports
