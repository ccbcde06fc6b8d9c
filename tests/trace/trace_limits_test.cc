// What a file may cost: memory in proportion to its text, time hardly more than that, whatever it holds. And what is no
// usable trace of ours: one sentence that names the file.
#include <sys/resource.h>
#include <sys/wait.h>

#include "fsdp/core/errors.h"
#include "tests/trace/kineto_text.h"

namespace harness::testing {
namespace {

using Made = std::function<std::string(int)>;  // the text of a trace of about so many events

std::string answer(const std::string& path, Convention c = Convention::kExclusive) {
  try {
    const TraceAnalysis a = analyze({path}, c);
    return to_json(a) + to_text(a);
  } catch (const fsdp::ConfigError& e) {
    return std::string("refused: ") + e.what();
  }
}

// Peak of a process that reads the file and does nothing else.
double peak_bytes(const std::string& path) {
  const pid_t child = fork();
  if (child == 0) {
    (void)answer(path);
    _exit(0);
  }
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  EXPECT_EQ(status, 0) << path;
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

double cpu_seconds(const std::string& path, Convention c) {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  (void)answer(path, c);
  getrusage(RUSAGE_SELF, &after);
  auto seconds = [](const rusage& u) {
    return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
  };
  return seconds(after) - seconds(before);
}

std::string slice(const std::string& category, const std::string& name, const std::string& pid, int tid, long ts,
                  long dur, const std::string& args) {
  return "{\"ph\":\"X\",\"cat\":\"" + category + "\",\"name\":\"" + name + "\",\"pid\":" + pid +
         ",\"tid\":" + std::to_string(tid) + ",\"ts\":" + std::to_string(ts) + ",\"dur\":" + std::to_string(dur) +
         ",\"args\":{" + args + "}},\n";
}
std::string kernel(const std::string& name, int stream, long ts, long dur, int correlation, const char* device = "0") {
  return slice("kernel", name, device, stream, ts, dur, "\"correlation\":" + std::to_string(correlation));
}
std::string launch(long ts, int correlation, const char* name = "cudaLaunchKernel", long dur = 1) {
  return slice("cuda_runtime", name, "5", 7, ts, dur, "\"correlation\":" + std::to_string(correlation));
}
std::string range(const std::string& name, long ts, long dur) {
  return slice("user_annotation", name, "5", 7, ts, dur, "");
}
std::string foreign(const std::string& events) {
  return "{\"distributedInfo\":{\"rank\":0,\"world_size\":2},\"traceEvents\":[\n" + events + "{}]}";
}
std::string span(const std::string& kind, int tid, long ts, long dur, int id, const std::string& more = "") {
  return slice(kind, "x", "1000", tid, ts, dur, "\"id\":" + std::to_string(id) + ",\"step\":0" + more);
}
std::string own(const std::string& events) {
  return "{\"schema\":\"shardscope-trace/1\",\"traceEvents\":[\n" + events + "{}]}";
}

std::string repeat(int n, const std::function<std::string(int)>& f) {
  std::string out;
  for (int i = 0; i < n; ++i) out += f(i);
  return out;
}

struct Shape {
  const char* name;
  Made text;
  Convention convention = Convention::kExclusive;
};
void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }  // in names of tests

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {"NestedAnnotations",
       [](int n) {
         return foreign(repeat(n / 3, [&](int i) {
           return range("FSDP::pre_forward (u" + std::to_string(i) + ")", i, 10L * n - 2 * i) +
                  launch(10L * n + i, i + 1) + kernel("gemm", 7, 11L * n + 2 * i, 1, i + 1);
         }));
       }},
      {"CollectivesThatAllRunAtOnce",
       [](int n) {
         return foreign(kernel("gemm", 7, 3L * n, 10, 1) +
                        repeat(n, [&](int i) { return kernel("ncclDevKernel_AllGather", i, i, 2L * n, i + 2); }));
       }},
      {"StepsOverOneLongKernel",
       [](int n) {
         return foreign(kernel("gemm", 7, 0, 1, 1) + launch(0, 1) +
                        repeat(n, [](int i) { return range("step " + std::to_string(i), 10 * i, 10); }));
       }},
      {"StepsOfManyKinds",
       [](int n) {
         return foreign(kernel("gemm", 7, 0, 1, 1) + launch(0, 1) + repeat(n, [](int i) {
                          return range(i % 2 == 0 ? "step" : "iteration " + std::to_string(i), 5 * i, 100);
                        }));
       }},
      {"UnitsThatAreAllExposed",
       [](int n) {
         return foreign(repeat(n / 3, [](int i) {
           return range("FSDP::all_gather (u" + std::to_string(i) + ")", 10 * i, 5) + launch(10 * i + 1, i + 1) +
                  kernel("ncclDevKernel_AllGather", 20, 10 * i + 3, 4, i + 1);
         }));
       }},
      {"AllocationsInEveryGap",
       [](int n) {
         return foreign(repeat(n / 3, [](int i) {
           return launch(10 * i + 5, 0, "cudaMalloc", 2) + launch(10 * i + 7, i + 1) +
                  kernel("gemm", 7, 10 * i + 9, 3, i + 1);
         }));
       }},
      {"RowsOfManyDevices",
       [](int n) {
         return foreign(repeat(n / 2, [](int i) {
           return launch(10 * i, i + 1) + kernel("gemm", 7, 10 * i + 9, 3, i + 1, std::to_string(i % 3000).c_str());
         }));
       }},
      {"OneCollectiveOverEverythingByHta",
       [](int n) {
         return foreign(
             kernel("ncclDevKernel_AllReduce", 20, 0, 90, 1) +
             repeat(n, [](int i) { return kernel("gemm", 7, 20L * i, 10, i + 2); }) +
             repeat(n / 50, [](int i) { return kernel("ncclDevKernel_AllReduce", 20, 80L * i, 90, i + 2); }));
       },
       Convention::kHta},
      {"Fsdp1Forwards",
       [](int n) {
         return foreign(repeat(n / 4, [](int i) {
           return range("FullyShardedDataParallel.forward", i == 0 ? 0 : 10 * i, i == 0 ? 1000000000 : 5) +
                  range("FullyShardedDataParallel._pre_backward_hook", 500000000 + 10 * i, 5) +
                  launch(500000001 + 10 * i, i + 1) + kernel("gemm", 7, 500000003 + 10 * i, 2, i + 1);
         }));
       }},
      {"CallsThatLaunchNothing",
       [](int n) {
         return foreign(kernel("gemm", 7, 20L * n, 2, n + 1) + launch(19L * n, n + 1) +
                        repeat(n, [](int i) { return launch(10 * i, i + 1); }));
       }},
      {"OwnStepsUnderOneLongWait",
       [](int n) {
         return own(span("wait", 0, 0, 20L * n, 1) + repeat(n / 2, [](int i) {
                      return span("step", 0, 20 * i, 20, 0) + span("compute", 10, 20 * i + 1, 5, i + 2);
                    }));
       }},
      {"OwnUnitsThatAreAllExposed",
       [](int n) {
         return own(
             span("step", 0, 0, 20L * n, 0) + repeat(n / 2, [](int i) {
               const std::string unit = ",\"unit\":\"u\",\"pass\":\"forward\",\"unit_index\":" + std::to_string(i);
               return span("all_gather", 20, 20 * i, 9, 2 * i + 1, unit) +
                      span("compute", 10, 20 * i + 10, 5, 2 * i + 2, ",\"waits\":[" + std::to_string(2 * i + 1) + "]");
             }));
       }},
      {"OwnCollectivesInAChain",
       [](int n) {
         return own(span("step", 0, 0, 40L * n, 0) +
                    repeat(n,
                           [&](int i) {
                             return span("all_gather", 20, 10L * n + 10 * i, 9, i + 1,
                                         ",\"waits\":[" + std::to_string(i) + "]");
                           }) +
                    span("compute", 10, 25L * n, 5, n + 1, ",\"waits\":[" + std::to_string(n) + "]"));
       }},
      {"OwnSpansIssuedLongBefore",
       [](int n) {
         return own(repeat(n / 2, [](int i) {
           return span("step", 0, 20 * i, 20, 0) + span("compute", 10, 20 * i + 1, 5, i + 1, ",\"issued\":0");
         }));
       }},
  };
  return all;
}

class TraceCost : public ::testing::TestWithParam<Shape> {};

// Four times the events: n log n gives 4.6 times the time, the square 16 times.
TEST_P(TraceCost, TimeGrowsHardlyFasterThanTheText) {
  const int n = 20'000;
  double small = 1e9, large = 1e9;
  const std::string a = write_file("cost_small.json", GetParam().text(n)),
                    b = write_file("cost_large.json", GetParam().text(4 * n));
  for (int round = 0; round < 3; ++round) {
    small = std::min(small, cpu_seconds(a, GetParam().convention));
    large = std::min(large, cpu_seconds(b, GetParam().convention));
  }
  EXPECT_LT(large, 8 * small + 0.05) << small << " s for " << n << " events, " << large << " s for four times as many";
  std::remove(a.c_str());
  std::remove(b.c_str());
}

TEST_P(TraceCost, MemoryStaysBelowAHundredBytesAByte) {
  const std::string path = write_file("memory.json", GetParam().text(100'000));
  const double text = static_cast<double>(read_file(path).size());
  EXPECT_LT(peak_bytes(path), 64e6 + 100 * text) << text << " bytes of text";
  std::remove(path.c_str());
}

INSTANTIATE_TEST_SUITE_P(Shapes, TraceCost, ::testing::ValuesIn(shapes()),
                         [](const auto& i) { return std::string(i.param.name); });

TEST(TraceAmplification, UnitsWithAnIndexOfAMillionAreRefusedInASentence) {
  const std::string path = data("attacks/own_units.json.gz");
  const std::string why = answer(path);
  EXPECT_EQ(why.find("refused: [" + path + "] is no trace of ours: unit_index 1048576 in "), 0u) << why.substr(0, 300);
  EXPECT_LT(peak_bytes(path), 64e6);
}

TEST(TraceAmplification, MembersThatNothingAsksForAreNotKept) {
  const std::string path = temporary("members.json");
  {
    std::ofstream file(path);
    file << "{\"schemaVersion\":1";
    const std::string value(1'000'000, 'x');
    for (int i = 0; i < 200; ++i) file << ",\"m" << i << "\":\"" << value << "\"";
    file << ",\"traceEvents\":[" << kernel("gemm", 7, 0, 10, 1) << "{}]}";
  }
  EXPECT_LT(peak_bytes(path), 80e6);
  std::remove(path.c_str());
}

TEST(TraceAmplification, NamesOfUnitsAreHeldOnceForAllRanks) {
  std::string events;
  for (int unit = 0; unit < 300; ++unit) {
    events += span("compute", 10, 10 + unit, 1, unit + 1,
                   ",\"unit_index\":" + std::to_string(unit) + ",\"unit\":\"" + std::string(10'000, 'u') + "\"");
  }
  for (int rank = 0; rank < 400; ++rank) {
    events += slice("step", "x", std::to_string(1000 * (rank + 1)), 0, 0, 1000, "\"id\":900,\"step\":0");
  }
  const std::string path = write_file("ranks.json", own(events));
  EXPECT_LT(peak_bytes(path), 64e6 + 100.0 * static_cast<double>(events.size()) / 3);
  std::remove(path.c_str());
}

TEST(UnusableOwnTrace, IsRefusedWithItsName) {
  const std::string path = data("attacks/own_without_step.json");
  EXPECT_EQ(answer(path).find("refused: [" + path + "] is no usable trace of ours: "), 0u) << answer(path);
  const std::string overlap = write_file("overlap.json", own(span("step", 0, 0, 10, 1) + span("step", 0, 5, 10, 2)));
  EXPECT_NE(answer(overlap).find("overlap.json] is no usable trace of ours: "), std::string::npos) << answer(overlap);
  const std::string twice = write_file("twice.json", own(span("step", 0, 0, 10, 1) + span("compute", 10, 0, 10, 1)));
  EXPECT_NE(answer(twice).find("occurs twice"), std::string::npos) << answer(twice);
  std::string at_once = span("step", 0, 0, 1000, 1);
  for (int i = 0; i < 300; ++i) at_once += span("all_gather", 20, i, 500, i + 2);
  EXPECT_NE(answer(write_file("once.json", own(at_once))).find("spans of rank 0 run at once"), std::string::npos);
}

TEST(UnusableOwnTrace, RanksBeyondAllRangesAreSetAside) {
  const std::string far = slice("compute", "x", "9223372036854775807", 10, 0, 5, "\"id\":2,\"step\":0");
  const TraceAnalysis a = analyze({write_file("far.json", own(span("step", 0, 0, 10, 1) + far))});
  EXPECT_EQ(a.rows.size(), 1u);
  EXPECT_EQ(a.files[0].facts.bad.not_a_number, 1);
}

}  // namespace
}  // namespace harness::testing
