// Traces of known partition, from a thousand events to a million: exact, in flat memory. Needs the python that made the
// build (no packages).
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstdlib>

#include "tests/trace/kineto_text.h"

namespace harness::testing {
namespace {

struct Made {
  std::string path;
  nlohmann::json expected;
};

Made make_trace(const std::string& name, int cells, int shift_ns = 0, const std::string& shape = "mixed") {
  Made m;
  m.path = temporary(name);
  const std::string command = shell_word(SHARDSCOPE_PYTHON) + " " + shell_word(SHARDSCOPE_MAKE_TRACE) + " -o " +
                              shell_word(m.path) + " --cells " + std::to_string(cells) + " --shift-ns " +
                              std::to_string(shift_ns) + " --shape " + shape;
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  m.expected = nlohmann::json::parse(read_file(m.path + ".expected.json"));
  return m;
}

void expect_exact(const Made& m) {
  const TraceAnalysis a = analyze({m.path});
  EXPECT_EQ(a.outcome, TraceOutcome::kClean);
  EXPECT_EQ(a.files[0].facts.events, m.expected["events"]);
  const RowAnalysis& r = a.rows.at(0);
  auto us = [&](const char* key) { return m.expected[key].get<fsdp::Nanos>() * 1000; };
  EXPECT_EQ(column(r.total, PartitionClass::kCompute), us("compute"));
  EXPECT_EQ(column(r.total, PartitionClass::kOverlapped), us("overlapped"));
  EXPECT_EQ(exposed(r.total.partition.classes), us("exposed_other"));
  EXPECT_EQ(column(r.total, PartitionClass::kCopy), us("copy"));
  EXPECT_EQ(r.total.host_not_issued, us("host_not_issued"));
  EXPECT_EQ(r.total.host_launch, us("host_launch"));
  EXPECT_EQ(r.total.idle_dependency, us("idle_dependency"));
  EXPECT_EQ(r.total.idle_unknown, 0);
  EXPECT_EQ(r.total.partition.communication, us("communication"));
  EXPECT_EQ(sum(r.total.partition.classes), us("span"));
}

TEST(MadeTrace, AThousandEvents) { expect_exact(make_trace("1e3.json", 59)); }
TEST(MadeTrace, AThousandEventsShiftedByAQuarterMicrosecond) { expect_exact(make_trace("1e3s.json", 59, 250)); }
TEST(MadeTrace, TenThousandEventsInGzip) { expect_exact(make_trace("1e4.json.gz", 589, 999)); }
TEST(MadeTrace, AHundredThousandEvents) { expect_exact(make_trace("1e5.json", 5883, 1)); }
TEST(MadeTrace, AMillionEvents) {
  const Made m = make_trace("1e6.json", 58824, 123);
  expect_exact(m);
  std::remove(m.path.c_str());
}
TEST(MadeTrace, DenseOverlapFromAThousandToAHundredThousandEvents) {
  for (const int cells : {40, 400, 4000}) expect_exact(make_trace("dense.json", cells, 250, "dense"));
}
// The target ten_million_events runs it: 2 GB of text.
TEST(MadeTrace, DISABLED_TenMillionEvents) {
  for (const std::string shape : {"mixed", "dense"}) {
    const Made m = make_trace("1e7.json", shape == "mixed" ? 588'236 : 400'000, 123, shape);
    EXPECT_GE(m.expected["events"], 10'000'000);
    expect_exact(m);
    std::remove(m.path.c_str());
  }
}

long peak_kib_of_reading(const std::string& path) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    analyze({path});
    struct rusage usage {};
    getrusage(RUSAGE_SELF, &usage);
    const long peak = usage.ru_maxrss;
    _exit(write(pipe_ends[1], &peak, sizeof peak) == sizeof peak ? 0 : 1);
  }
  long peak = -1;
  if (read(pipe_ends[0], &peak, sizeof peak) != sizeof peak) peak = -1;
  int status = 0;
  waitpid(child, &status, 0);
  close(pipe_ends[0]), close(pipe_ends[1]);
  return peak;
}

TEST(MadeTrace, MemoryDoesNotGrowWithTheFile) {
  const Made half = make_trace("half.json", 30'000), whole = make_trace("whole.json", 90'000);
  const long a = peak_kib_of_reading(half.path), b = peak_kib_of_reading(whole.path);
  std::remove(half.path.c_str());
  std::remove(whole.path.c_str());
  ASSERT_GT(a, 0);
  EXPECT_LT(b - a, 24 * 1024) << "three times the events; the smaller takes " << a << " KiB";
}

}  // namespace
}  // namespace harness::testing
