#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "fsdp/core/errors.h"
#include "harness/cli/commands.h"
#include "harness/cli/result_files.h"
#include "harness/store/whole_file.h"
#include "harness/sweep/settings.h"
#include "reports/csv.h"
#include "reports/html.h"

namespace harness::cli {
namespace {

struct ReportFlags {
  std::vector<std::string> directories;
  std::string html, csv;
};

std::string default_page(const ReportFlags& flags) {
  namespace fs = std::filesystem;
  const fs::path first = flags.directories.front();
  return ((fs::is_directory(first) ? first : first.parent_path()) / "report.html").string();
}

// The results' directory as seen from the page, for links to logs and traces; empty where the page lies in it.
std::string folder_from(const std::string& page, const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path results =
      fs::is_directory(directory, ignored) ? fs::path(directory) : fs::path(directory).parent_path();
  const fs::path from = fs::absolute(page, ignored).parent_path();
  const std::string folder =
      fs::absolute(results, ignored).lexically_normal().lexically_relative(from.lexically_normal()).string();
  return folder == "." ? std::string() : folder;
}

void report(const ReportFlags& flags) {
  if (!flags.csv.empty() && flags.directories.size() > 1) {
    throw fsdp::ConfigError("[--csv] takes one directory: sweeps have different columns; call report once for each");
  }
  std::vector<reports::ReportInput> inputs;
  const std::string page = flags.html.empty() ? default_page(flags) : flags.html;
  for (const std::string& directory : flags.directories) {
    inputs.push_back(read_results(directory));
    inputs.back().folder = folder_from(page, directory);
  }
  reports::ReportOptions options;
  options.title = inputs.front().sweep.name;
  for (const SettingRow& row : setting_table()) options.defaults[row.name] = row.standard;
  write_file(page, reports::report_html(inputs, options));
  if (!flags.csv.empty()) write_file(flags.csv, reports::cases_csv(inputs.front().sweep, inputs.front().cases));
  for (const reports::ReportInput& input : inputs) std::cout << reports::report_text(input);
  std::cout << page << std::endl;
}

}  // namespace

void add_report(CLI::App& app) {
  CLI::App* command = app.add_subcommand("report", "Makes one self-contained HTML page from the results of sweeps");
  auto flags = std::make_shared<ReportFlags>();
  command->add_option("DIR", flags->directories, "directories that `sweep` wrote, or their results.db")
      ->required()
      ->expected(1, 1000);
  command->add_option("-o,--output", flags->html, "the page (default report.html in the first DIR)")
      ->type_name("FILE.html")
      ->group("Output");
  command->add_option("--csv", flags->csv, "writes one row per case too (one DIR only)")
      ->type_name("FILE.csv")
      ->group("Output");
  command->footer(
      "The answers are printed, the page's path is the last line. The page opens from disk without a network.\n\n"
      "Examples:\n"
      "  shardscope report out/quickstart\n"
      "  shardscope report out/a out/b -o both.html\n"
      "  shardscope report out/quickstart --csv cases.csv");
  command->callback([flags] { report(*flags); });
}

}  // namespace harness::cli
