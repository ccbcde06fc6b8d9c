// A store of 2,000 cases: starting a sweep over it, going on with it, and reporting it stay quick. All in processor
// time, so that a busy machine does not decide.
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>

#include "harness/sweep/runner.h"
#include "tests/cli/call.h"
#include "tests/testing/time.h"

namespace {

const char* kSpec =
    "name: large\naxes:\n"
    "  wrap: [root, 'blocks:2', block, sublayer]\n"
    "  backward_prefetch: [none, post, pre, 'pre:2', 'pre:3']\n"
    "  forward_prefetch: [0, 1, 2, 3, 4]\n"
    "  batch: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]\n";

harness::CaseRecord quick_case(const harness::CaseSettings& c, const harness::CasePlan&) {
  harness::CaseRecord r;
  r.status = c.batch > 17 ? harness::Status::kOom : harness::Status::kOk;
  if (!harness::measured(r.status)) return r;
  for (int i = 0; i < 9; ++i) r.samples.push_back(10'000'000 + 1'000'000 * c.batch + 1000 * i);
  r.step_ns = r.samples[4], r.step_ci_low_ns = r.samples[1], r.step_ci_high_ns = r.samples[7];
  r.peak_bytes = 1'000'000 * c.batch;
  r.tokens_per_s = 1e5;
  r.partition = harness::Partition{};
  (*r.partition)[0] = *r.step_ns;
  r.traced_step_ns = r.step_ns;
  for (int u = 0; u < 9; ++u) {
    r.unit_table.emplace_back();
    r.unit_table.back().name = "model.layers." + std::to_string(u);
  }
  return r;
}

using testing_support::processor_time;

double seconds(fsdp::Nanos from) { return static_cast<double>(processor_time() - from) / 1e9; }

TEST(TwoThousandCases, StartResumeAndReportAreQuick) {
  const std::string dir = cli_test::fresh_directory("scale");
  std::filesystem::create_directories(dir);
  cli_test::write_file(dir + "/s.yaml", kSpec);
  const harness::SweepSpec spec = harness::parse_spec(kSpec, dir + "/s.yaml");
  harness::SweepOptions options;
  options.directory = dir + "/out";
  const fsdp::Nanos begin = processor_time();
  double start = -1;
  harness::SweepHooks hooks;
  hooks.before_case = [&](const harness::SweepProgress&, const harness::SweepCase&) {
    if (start < 0) start = seconds(begin);
  };
  EXPECT_EQ(harness::run_sweep(spec, options, quick_case, hooks).progress.total, 2000u);
  const fsdp::Nanos again = processor_time();
  EXPECT_EQ(harness::run_sweep(spec, options, quick_case).progress.ran, 0u);
  const double resume = seconds(again);
  const cli_test::Called report = cli_test::call({"report", dir + "/out"});
  EXPECT_EQ(report.code, 0) << report.err;
  const cli_test::Called recommend = cli_test::call({"recommend", dir + "/out"});
  EXPECT_EQ(recommend.code, 0) << recommend.err;
  const double report_s = static_cast<double>(report.cpu_us) / 1e6,
               recommend_s = static_cast<double>(recommend.cpu_us) / 1e6;
  std::cout << "2,000 cases: start " << start << " s, resume " << resume << " s, report " << report_s
            << " s, recommend " << recommend_s << " s\n";
  EXPECT_LE(start, 1);
  EXPECT_LE(resume, 1);
  EXPECT_LE(report_s, 3);
  EXPECT_LE(recommend_s, 3);
  std::filesystem::remove_all(dir);
}

}  // namespace
