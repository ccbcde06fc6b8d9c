#include "harness/advise/recommend.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "fsdp/core/errors.h"
#include "fsdp/core/escape.h"
#include "harness/advise/findings.h"
#include "harness/cli/commands.h"
#include "harness/cli/confirm.h"
#include "harness/store/store.h"
#include "harness/sweep/quantities.h"
#include "harness/sweep/text.h"

namespace harness::cli {
namespace {

constexpr std::size_t kFindingsShown = 5;

struct RecommendFlags {
  std::string directory, memory, margin = "5%", format = "fsdp2", workload;
  bool confirm = false;
};

// The whole output is Python: what was found is in comments, the policy below them.
void print_python(const std::vector<Recommendation>& all, const std::vector<CaseRecord>& cases, bool fsdp1) {
  for (const Recommendation& r : all) {
    std::cout << fsdp::python_comment(recommendation_text(r, cases));
    if (!r.best) continue;
    const Policy policy = policy_of(settings_of(cases[r.best->index]));
    std::cout << "\n" << (fsdp1 ? fsdp1_snippet(policy) : fsdp2_snippet(policy)) << "\n";
  }
}

void print_findings(const SweepRecord& sweep, const std::vector<CaseRecord>& cases) {
  const std::vector<Finding> findings = find_findings(sweep.axes, cases);
  const std::size_t n = std::min(kFindingsShown, findings.size());
  std::string text;
  for (std::size_t i = 0; i < n; ++i)
    text += fmt::format("{}: {} (confidence {})\n", name_of(findings[i].kind), findings[i].text,
                        name_of(findings[i].confidence));
  if (findings.size() > n) text += fmt::format("and {} more findings in the report\n", findings.size() - n);
  if (!text.empty()) std::cout << fsdp::python_comment("What else the sweep shows:\n" + text);
}

// A file of Python holds one policy: of two functions of one name the second would win without a word.
void check_one_policy(const std::vector<Recommendation>& all, const std::string& directory) {
  std::string workloads;
  int policies = 0;
  for (const Recommendation& r : all) {
    if (!r.best) continue;
    ++policies;
    workloads += (workloads.empty() ? "" : ", or ") + shell_quoted(r.workload);
  }
  if (policies > 1)
    throw fsdp::ConfigError(fmt::format(
        "[{}] holds {} workloads, and a policy is for one; give --for {} (or --format json, which holds them all)",
        directory, policies, workloads));
}

void recommend_command(const RecommendFlags& flags) {
  RecommendOptions options;
  if (!flags.memory.empty()) {
    try {
      options.memory = parse_bytes(flags.memory);
    } catch (const fsdp::ConfigError& e) {
      throw fsdp::ConfigError(fmt::format("[--memory] {}", e.what()));
    }
  }
  try {
    options.margin = parse_percent(flags.margin);
    if (options.margin >= 1)
      throw fsdp::ConfigError(fmt::format("{} leaves no memory; use less than 100%", flags.margin));
  } catch (const fsdp::ConfigError& e) {
    throw fsdp::ConfigError(fmt::format("[--margin] {}", e.what()));
  }
  if (flags.format != "fsdp2" && flags.format != "fsdp1" && flags.format != "json")
    throw fsdp::ConfigError(fmt::format("[--format] \"{}\" is not a format; use fsdp2, fsdp1 or json", flags.format));
  if (flags.confirm && flags.format == "json")
    throw fsdp::ConfigError("[--confirm] runs what fsdp2 or fsdp1 prints; leave --format json out");
  options.single_modules = flags.format == "fsdp1";
  Store store = Store::open(flags.directory);
  const SweepRecord sweep = store.has_sweep() ? store.read_sweep() : SweepRecord{};
  const std::vector<CaseRecord> cases = store.read_cases();
  if (cases.empty())
    throw fsdp::ConfigError(fmt::format("[{}] holds no case yet; run the sweep first", flags.directory));
  std::vector<Recommendation> all = recommend(cases, options);
  if (!flags.workload.empty()) all = {recommendation_for(all, flags.workload)};
  if (flags.format != "json") check_one_policy(all, flags.directory);
  if (flags.format == "json") {
    std::cout << recommendations_json(all, cases);
  } else {
    print_python(all, cases, flags.format == "fsdp1");
    for (const Recommendation& r : all) {
      if (flags.confirm && r.best)
        std::cout << fsdp::python_comment(
            confirmation(r, cases, flags.format == "fsdp1" ? Runtime::kFsdp1 : Runtime::kFsdp2));
    }
    print_findings(sweep, cases);
  }
  std::cout << std::flush;
  if (std::none_of(all.begin(), all.end(), [](const Recommendation& r) { return r.best.has_value(); }))
    ends_with(kNegative);
}

}  // namespace

void add_recommend(CLI::App& app) {
  CLI::App* command = app.add_subcommand("recommend", "The wrap policy to paste into PyTorch, and what it beats");
  auto flags = std::make_shared<RecommendFlags>();
  command->add_option("DIR", flags->directory, "directory that `sweep` wrote, or its results.db")->required();
  command->add_option("--memory", flags->memory, "memory per rank that it must fit (default: the cases' memory_budget)")
      ->type_name("BYTES");
  command->add_option("--margin", flags->margin, "of that memory, to be left free (default 5%)")->type_name("PCT");
  command
      ->add_option(
          "--for", flags->workload,
          "the workload whose policy is wanted, where DIR holds several: its label, or a part of it that no other has")
      ->type_name("WORKLOAD");
  command->add_option("--format", flags->format, "fsdp2 or fsdp1: Python to paste; json (default fsdp2)")
      ->type_name("fsdp2|fsdp1|json");
  command->add_flag(
      "--confirm", flags->confirm,
      "run the policy and its runners-up under PyTorch's FSDP on this machine, and say whether the choice holds");
  command->footer(
      "The output of fsdp2 and fsdp1 is a Python file: findings in comments, then a function that shards the model.\n"
      "Ends with 1 when nothing fits.\n\n"
      "Examples:\n"
      "  shardscope recommend out/quickstart > policy.py\n"
      "  shardscope recommend out/quickstart --memory 300MiB --format json\n"
      "  shardscope recommend out/quickstart --confirm > policy.py\n"
      "  shardscope recommend out/worlds --for \"world 8\" > policy.py");
  command->callback([flags] { recommend_command(*flags); });
}

}  // namespace harness::cli
