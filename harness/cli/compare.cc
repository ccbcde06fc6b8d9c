#include "harness/advise/compare.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "fsdp/core/errors.h"
#include "harness/cli/commands.h"
#include "harness/store/store.h"
#include "harness/store/whole_file.h"
#include "harness/sweep/quantities.h"
#include "harness/sweep/spec.h"
#include "harness/sweep/text.h"
#include "reports/compare_page.h"

namespace harness::cli {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kLargestBaseline = std::size_t{1} << 28;

struct CompareFlags {
  std::string a, b, gate, noise, allow, baseline, page;
  bool json = false;
};

double percent_of(const std::string& flag, std::string text) {
  if (!text.empty() && text.back() != '%') text += "%";
  try {
    return parse_percent(text);
  } catch (const fsdp::ConfigError& e) {
    throw fsdp::ConfigError(fmt::format("[{}] {}", flag, e.what()));
  }
}

Side read_side(const std::string& text, CompareOptions& options) {
  std::error_code ignored;
  const SideName name = parse_side(text, fs::exists(text, ignored));
  for (const auto& [setting, value] : name.selected) options.allow.insert(setting);
  Side side;
  const bool file = fs::is_regular_file(name.path, ignored);
  if (file && fs::path(name.path).extension() != ".db") {
    side = baseline_from_json(read_small_file(name.path, kLargestBaseline, "a results directory or a baseline file"),
                              name.path);
  } else {
    Store store = Store::open(name.path);
    if (store.has_sweep()) side.sweep = store.read_sweep();
    side.cases = store.read_cases();
    side.origin =
        fs::weakly_canonical(file ? fs::path(name.path) : fs::path(name.path) / "results.db", ignored).string();
  }
  side.name = text;
  select_cases(side, name);
  return side;
}

void compare_command(const CompareFlags& flags) {
  CompareOptions options;
  if (!flags.noise.empty()) options.noise = percent_of("--noise", flags.noise);
  if (!flags.gate.empty()) options.gate = percent_of("--gate", flags.gate);
  for (const std::string& name : split(flags.allow, ','))
    if (!name.empty()) options.allow.insert(name);
  const Side a = read_side(flags.a, options);
  if (!flags.baseline.empty()) write_file(flags.baseline, baseline_json(a));
  if (flags.b.empty()) {
    if (flags.baseline.empty())
      throw fsdp::ConfigError("[compare] B is missing; give two results, or A with --write-baseline FILE");
    std::cout << flags.baseline << std::endl;
    return;
  }
  const Side b = read_side(flags.b, options);
  const Comparison c = compare(a, b, options);
  std::cout << (flags.json ? comparison_json(c, a, b, options) : comparison_text(c, a, b, options)) << std::flush;
  if (!flags.page.empty()) {
    write_file(flags.page, reports::compare_html(c, a, b, options));
    if (!flags.json) std::cout << flags.page << std::endl;
  }
  if (c.negative()) ends_with(kNegative);
}

}  // namespace

void add_compare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("compare", "Whether B is faster or slower than A, by how much, and how surely");
  auto flags = std::make_shared<CompareFlags>();
  command->add_option("A", flags->a, "results directory, results.db, or a baseline file; DIR:wrap=block selects")
      ->required();
  command->add_option("B", flags->b, "the same, of the other side");
  command
      ->add_option(
          "--gate", flags->gate,
          "ends with 1 when B is surely slower by more than this, or looks so and has fewer than six pairs or samples, "
          "of which none is sure")
      ->type_name("PCT");
  command
      ->add_option("--noise", flags->noise,
                   "half-width of an A/A comparison on this machine: what counts as the same (default 1.5% for arms in "
                   "turns, 2% for others)")
      ->type_name("PCT");
  command->add_option("--allow", flags->allow, "settings or environment fields that may differ, with commas")
      ->type_name("NAMES");
  command->add_option("--write-baseline", flags->baseline, "writes what A holds as a file to keep in a repository")
      ->type_name("FILE.json");
  command->add_option("-o,--output", flags->page, "writes the comparison as one self-contained HTML page too")
      ->type_name("FILE.html");
  command->add_flag("--json", flags->json, "the result as one JSON document");
  command->footer(
      "Cases match when their settings are equal. Unlike runs (machine, model, batch, steps, ...) are refused with "
      "the\n"
      "fields that differ, and end with 1. Arms of one sweep with `interleave: true` are compared pair by pair\n"
      "(Hodges-Lehmann estimate, interval of the signed-rank test). A sure verdict needs six pairs, or six samples of\n"
      "both (repeat: {min: 6} in the spec); predictions are compared as they are.\n\n"
      "Examples:\n"
      "  shardscope compare out/before out/after --gate 3%\n"
      "  shardscope compare out/ab:backward_prefetch=none out/ab:backward_prefetch=pre\n"
      "  shardscope compare out/before out/after -o comparison.html\n"
      "  shardscope compare out/main --write-baseline baseline.json\n"
      "  shardscope compare baseline.json out/branch --gate 5% --json");
  command->callback([flags] { compare_command(*flags); });
}

}  // namespace harness::cli
