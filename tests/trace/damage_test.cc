// Whatever is done to the bytes of a trace: an answer that says it is partial, or one sentence; never a crash.
#include <random>

#include "fsdp/core/errors.h"
#include "tests/trace/kineto_text.h"
#include "tests/trace/nsys_file.h"

namespace harness::testing {
namespace {

enum class Fate { kClean, kPartial, kRefused };

Fate fate_of(const std::string& path) {
  try {
    const TraceAnalysis a = analyze({path});
    EXPECT_NO_THROW(nlohmann::json::parse(to_json(a)));
    EXPECT_FALSE(to_text(a).empty());
    for (const RowAnalysis& r : a.rows) {
      EXPECT_EQ(sum(r.partition.whole.partition.classes),
                r.partition.whole.partition.end - r.partition.whole.partition.begin);
    }
    return a.outcome == TraceOutcome::kClean ? Fate::kClean : Fate::kPartial;
  } catch (const fsdp::ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find(path), std::string::npos) << e.what();
    return Fate::kRefused;
  } catch (const fsdp::Error&) {
    return Fate::kRefused;
  }
}

// A real trace, small enough to be read some hundred times.
std::string small_trace() {
  const std::string text = read_text(data("kineto/ddp_2rank_a100.json.gz"));
  const std::size_t end = text.find("\n  {", 400'000);
  return text.substr(0, end - 1) + "\n  ]\n}\n";
}

TEST(Damage, TheSmallTraceItselfIsWhole) {
  const TraceAnalysis a = analyze({write_file("whole.json", small_trace())});
  EXPECT_FALSE(a.files[0].facts.defects.any()) << a.files[0].facts.defects.first;
}

TEST(Damage, CutAtEveryPercent) {
  const std::string text = small_trace();
  std::size_t last_events = 0;
  for (int percent = 0; percent < 100; ++percent) {
    const std::string path =
        write_file("cut.json", text.substr(0, text.size() * static_cast<std::size_t>(percent) / 100));
    EXPECT_NE(fate_of(path), Fate::kClean) << percent << " %";
    if (percent < 5) continue;
    const TraceAnalysis a = analyze({path});
    EXPECT_TRUE(a.files[0].facts.defects.truncated) << percent;
    EXPECT_GE(a.files[0].facts.events, last_events) << "more text never gives fewer events";
    EXPECT_LE(a.files[0].facts.defects.lost_events, 1u) << percent;
    last_events = a.files[0].facts.events;
  }
}

TEST(Damage, GzipCutAtEveryTenthPercent) {
  const std::string bytes = read_file(data("kineto/event_sync_multi_stream.json.gz"));
  for (std::size_t n = 0; n < bytes.size(); n += bytes.size() / 100) {
    EXPECT_NE(fate_of(write_file("cut.json.gz", bytes.substr(0, n))), Fate::kClean) << n;
  }
}

TEST(Damage, FiveHundredFlippedBytes) {
  const std::string text = small_trace();
  std::mt19937 rng(42);
  for (int i = 0; i < 500; ++i) {
    std::string bad = text;
    // One to four flips; half of them in the head, where members and first events are.
    for (unsigned k = 0; k <= rng() % 4; ++k) {
      const std::size_t range = rng() % 2 == 0 ? 4000 : bad.size();
      bad[rng() % range] = static_cast<char>(rng() % 256);
    }
    fate_of(write_file("flip.json", bad));
  }
}

TEST(Damage, FlippedBytesOfGzip) {
  const std::string bytes = read_file(data("kineto/event_sync_multi_stream.json.gz"));
  std::mt19937 rng(43);
  for (int i = 0; i < 200; ++i) {
    std::string bad = bytes;
    bad[rng() % bad.size()] = static_cast<char>(rng() % 256);
    fate_of(write_file("flip.json.gz", bad));
  }
}

TEST(Damage, FiveHundredTimesFlippedBytesOfADatabase) {
  const std::string bytes = read_file(data("nsys/synthetic_healthy.sqlite"));
  std::mt19937 rng(44);
  for (int i = 0; i < 500; ++i) {
    std::string bad = bytes;
    for (int k = 0; k < 4; ++k) bad[rng() % bad.size()] = static_cast<char>(rng() % 256);
    fate_of(write_file("flip.sqlite", bad));
  }
}

// What lies in pages that are still there is read; that pages are missing is said.
TEST(Damage, ADatabaseCutAtEveryPercentIsPartialOrRefused) {
  const std::string bytes = read_file(data("nsys/synthetic_healthy.sqlite"));
  for (std::size_t percent = 0; percent < 100; ++percent) {
    EXPECT_NE(fate_of(write_file("cut.sqlite", bytes.substr(0, bytes.size() * percent / 100))), Fate::kClean)
        << percent;
  }
}

TEST(Damage, RandomBytesAndOddValues) {
  std::mt19937 rng(45);
  for (int i = 0; i < 100; ++i) {
    std::string noise(rng() % 3000, '\0');
    for (char& c : noise) c = static_cast<char>(rng() % 256);
    EXPECT_EQ(fate_of(write_file("noise.json", noise)), Fate::kRefused);
    fate_of(write_file("noise2.json", "{\"traceEvents\": [" + noise));
  }
  const char* values[] = {"null", "true",          "{}", "[]", "\"\"", "-9223372036854775808", "1e308", "-1e-9",
                          "9e15", "{\"a\":[[[]]]}"};
  for (const char* v : values) {
    for (const char* key : {"ts", "dur", "pid", "tid", "name", "args", "ph", "cat"}) {
      std::string e =
          "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":1,\"dur\":2,\"args\":{"
          "\"correlation\":1}}";
      const std::size_t at = e.find(std::string("\"") + key + "\":") + std::string(key).size() + 3;
      const std::size_t end = e[at] == '{' ? e.find('}', at) + 1 : e.find_first_of(",}", at);
      e.replace(at, end - at, v);
      fate_of(KinetoText().kernel("good", 7, "5", "5").event(e).write("odd.json"));
    }
  }
}

TEST(Damage, AHugeNestingIsGivenUpNotFollowed) {
  KinetoText t;
  t.kernel("a", 7, "1", "1")
      .event("{\"ph\":\"X\",\"cat\":\"kernel\",\"args\":" + std::string(100'000, '[') + "}")
      .kernel("b", 7, "3", "1");
  EXPECT_EQ(fate_of(t.write("deep.json")), Fate::kPartial);
}

}  // namespace
}  // namespace harness::testing
