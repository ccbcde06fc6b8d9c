#include "harness/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>

#include "fsdp/core/errors.h"
#include "harness/store/span_codec.h"
#include "tests/testing/time.h"

namespace harness {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "store_" + std::to_string(::getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::string error_of(const std::function<void()>& act) {
    try {
      act();
    } catch (const fsdp::ConfigError& e) {
      return e.what();
    }
    return "accepted";
  }
  std::string directory_;
};

std::vector<fsdp::Span> some_spans(int rank, int count) {
  std::vector<fsdp::Span> spans;
  for (int i = 0; i < count; ++i) {
    fsdp::Span s;
    s.id = static_cast<std::uint32_t>(i + 1);
    s.rank = rank;
    s.step = 2;
    s.lane = static_cast<fsdp::Lane>(i % fsdp::kLaneCount);
    s.kind = static_cast<fsdp::SpanKind>(i % 10);
    s.unit = i % 7 - 1;
    s.pass = static_cast<fsdp::Pass>(i % 4);
    s.begin = 9'000'000'000'000'000 + 1000 * i - (i % 3) * 5000;
    s.issued = s.begin - i % 11;
    s.end = s.begin + 900;
    s.bytes = i * 4096;
    if (i % 5 == 4) s.waits = {s.id - 1, s.id - 2};
    spans.push_back(s);
  }
  return spans;
}

// Every field away from its default.
CaseRecord full_record(const std::string& id) {
  CaseRecord r;
  r.id = id;
  r.settings = {{"model", "llama"}, {"wrap", "block"}};
  r.axes = {{"wrap", "block"}, {"batch", "2"}};
  r.status = Status::kNearOom;
  r.reason = "99.1 % of the budget; lower the batch";
  r.units = 9;
  r.largest_unit_bytes = 65'537'024;
  r.samples = {1'000'000'001, 999'999'999, 1'000'000'000};
  r.step_ns = 1'000'000'000;
  r.step_mad_ns = 1;
  r.step_ci_low_ns = 999'999'999;
  r.step_ci_high_ns = 1'000'000'001;
  r.ci_coverage = 0.75;
  r.stopped_by = "max";
  r.repetitions = 3;
  r.tokens_per_s = 1.0 / 3.0;
  r.peak_bytes = 123'456'789;
  r.peak_cause = "model.layers.3, backward, unsharded parameters";
  r.traced_step_ns = 66;
  r.partition = Partition{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  r.partition_rank = 1;
  r.partition_step = 2;
  r.overlap_pct = 87.5;
  r.collectives = 25;
  r.communicated_bytes = 99'107'840;
  r.observer_ratio = 1.01;
  r.emulated = r.predicted = true;
  r.losses = {4.852030263919617, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()};
  r.grad_norms = {0.1, 1e-300, 3.0};
  r.unit_table = {{"root", 100, 400, 200, 400, "full_shard"},
                  {"model.layers.0", 10, 40, 20, 44, "no_shard"},
                  {"model.layers.1", 10, 40, 20, 44, "no_shard"},
                  {"model.layers.2", 10, 40, 20, 44, "no_shard"}};
  r.unit_metrics = {{1, fsdp::Pass::kBackward, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};
  r.partition_details = {
      {PartitionClass::kExposedReduceScatter, 1, fsdp::Pass::kBackward, fsdp::SpanKind::kReduceScatter, 5}};
  r.ranks.resize(2);
  for (int rank = 0; rank < 2; ++rank) {
    RankRecord& k = r.ranks[static_cast<std::size_t>(rank)];
    k.rank = rank;
    k.peak.total = 28;
    k.peak.at_peak = {1, 2, 3, 4, 5, 6, 7};
    k.peak.where = {3, fsdp::Pass::kBackward};
    k.category_peaks = {7, 6, 5, 4, 3, 2, 1};
    k.peak_cause = "root, forward, activations";
    k.step_ns = {11 + rank, 12, 13};
    r.steps.push_back({rank, 2, 66, *r.partition});
    const auto spans = some_spans(rank, 40);
    r.spans.insert(r.spans.end(), spans.begin(), spans.end());
  }
  r.environment = {{"cpu", "some \"model\", with a comma"}, {"git", "abc"}};
  r.warnings = {"first", "second"};
  r.started_at = 1'700'000'000;
  r.finished_at = 1'700'000'009;
  return r;
}

void expect_same_spans(const std::vector<fsdp::Span>& a, const std::vector<fsdp::Span>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto tie = [](const fsdp::Span& s) {
      return std::tie(s.id, s.rank, s.step, s.lane, s.kind, s.unit, s.pass, s.issued, s.begin, s.end, s.bytes, s.waits);
    };
    EXPECT_TRUE(tie(a[i]) == tie(b[i])) << i;
  }
}

void expect_same_doubles(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) << a[i] << " " << b[i];
}

void expect_same(const CaseRecord& a, const CaseRecord& b) {
  const auto scalars = [](const CaseRecord& r) {
    return std::tie(r.id, r.settings, r.axes, r.status, r.reason, r.units, r.largest_unit_bytes, r.samples, r.step_ns,
                    r.step_mad_ns, r.step_ci_low_ns, r.step_ci_high_ns, r.ci_coverage, r.stopped_by, r.repetitions,
                    r.tokens_per_s, r.peak_bytes, r.peak_cause, r.traced_step_ns, r.partition, r.partition_rank,
                    r.partition_step, r.overlap_pct, r.collectives, r.communicated_bytes, r.observer_ratio, r.emulated,
                    r.predicted, r.environment, r.warnings, r.started_at, r.finished_at);
  };
  EXPECT_TRUE(scalars(a) == scalars(b));
  expect_same_doubles(a.losses, b.losses);
  expect_same_doubles(a.grad_norms, b.grad_norms);
  ASSERT_EQ(a.unit_table.size(), b.unit_table.size());
  for (std::size_t i = 0; i < a.unit_table.size(); ++i) {
    const auto tie = [](const UnitRecord& u) {
      return std::tie(u.name, u.parameters, u.unsharded_bytes, u.shard_bytes, u.reduce_bytes, u.strategy);
    };
    EXPECT_TRUE(tie(a.unit_table[i]) == tie(b.unit_table[i]));
  }
  ASSERT_EQ(a.unit_metrics.size(), b.unit_metrics.size());
  for (std::size_t i = 0; i < a.unit_metrics.size(); ++i) {
    const auto tie = [](const UnitMetrics& u) {
      return std::tie(u.unit, u.pass, u.all_gathers, u.reduce_scatters, u.other_collectives, u.all_gather_bytes,
                      u.reduce_scatter_bytes, u.all_gather_ns, u.reduce_scatter_ns, u.exposed_ns, u.hidden_ns,
                      u.compute_ns, u.copy_ns);
    };
    EXPECT_TRUE(tie(a.unit_metrics[i]) == tie(b.unit_metrics[i]));
  }
  ASSERT_EQ(a.partition_details.size(), b.partition_details.size());
  for (std::size_t i = 0; i < a.partition_details.size(); ++i) {
    const auto tie = [](const PartitionDetail& d) { return std::tie(d.cls, d.unit, d.pass, d.collective, d.ns); };
    EXPECT_TRUE(tie(a.partition_details[i]) == tie(b.partition_details[i]));
  }
  ASSERT_EQ(a.ranks.size(), b.ranks.size());
  for (std::size_t i = 0; i < a.ranks.size(); ++i) {
    const auto tie = [](const RankRecord& k) {
      return std::tie(k.rank, k.peak.total, k.peak.at_peak, k.peak.where.unit, k.peak.where.pass, k.category_peaks,
                      k.peak_cause, k.step_ns);
    };
    EXPECT_TRUE(tie(a.ranks[i]) == tie(b.ranks[i]));
  }
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    const auto tie = [](const StepRow& s) { return std::tie(s.rank, s.step, s.length, s.classes); };
    EXPECT_TRUE(tie(a.steps[i]) == tie(b.steps[i]));
  }
}

TEST_F(StoreTest, AFullRecordReadsBackAsItWasWritten) {
  const CaseRecord full = full_record("llama-block-0123456789ab");
  CaseRecord empty;
  empty.id = "llama-root-0";
  empty.status = Status::kConfigError;
  empty.reason = "class:Nope matches no module";
  {
    Store store = Store::open_for_writing(directory_);
    store.write_case(full);
    store.write_case(empty);
  }
  Store store = Store::open(directory_);
  const auto light = store.read_cases();
  ASSERT_EQ(light.size(), 2u);
  expect_same(light[0], full);
  expect_same(light[1], empty);
  EXPECT_TRUE(light[0].spans.empty());
  EXPECT_FALSE(light[1].partition.has_value());
  expect_same_spans(store.read_cases(Store::Detail::kAll)[0].spans, full.spans);
  expect_same_spans(store.read_spans(full.id), full.spans);
  const CaseRecord one = store.read_case(full.id);
  expect_same(one, full);
  expect_same_spans(one.spans, full.spans);
  EXPECT_EQ(store.finished_ids(), (std::vector<std::string>{full.id, empty.id}));
  EXPECT_THAT(error_of([&] { store.read_case("nope"); }), HasSubstr("holds no case nope"));
}

TEST_F(StoreTest, TheSweepReadsBackAndOrdersItsCases) {
  SweepRecord sweep;
  sweep.name = "example";
  sweep.spec_text = "name: example\n";
  sweep.spec_hash = "abc";
  sweep.command = "shardscope sweep a.yaml -o 'out dir'";
  sweep.axes = {{"wrap", {"root", "block"}}, {"batch", {"1", "2"}}};
  sweep.environment = {{"host", "h"}};
  sweep.created_at = 17;
  Store store = Store::open_for_writing(directory_);
  EXPECT_FALSE(store.has_sweep());
  EXPECT_THAT(error_of([&] { store.read_sweep(); }), HasSubstr("holds no sweep yet"));
  store.write_sweep(sweep);
  store.write_sweep(sweep);
  const SweepRecord again = store.read_sweep();
  EXPECT_EQ(std::tie(again.name, again.spec_text, again.spec_hash, again.command, again.axes, again.environment,
                     again.created_at, again.schema_version),
            std::tie(sweep.name, sweep.spec_text, sweep.spec_hash, sweep.command, sweep.axes, sweep.environment,
                     sweep.created_at, sweep.schema_version));
  for (const auto& [id, wrap, batch] : std::vector<std::array<std::string, 3>>{
           {"d", "block", "2"}, {"x", "elsewhere", "1"}, {"b", "root", "2"}, {"c", "block", "1"}, {"a", "root", "1"}}) {
    CaseRecord r;
    r.id = id;
    r.axes = {{"wrap", wrap}, {"batch", batch}};
    store.write_case(r);
  }
  std::string order;
  for (const CaseRecord& r : store.read_cases()) order += r.id;
  EXPECT_EQ(order, "abcdx");
}

TEST_F(StoreTest, ACaseThatIsRunAgainReplacesItsRecordAndKeepsBothAttempts) {
  Store store = Store::open_for_writing(directory_);
  CaseRecord r = full_record("a");
  r.status = Status::kTimeout;
  store.write_case(r);
  r.status = Status::kOk;
  store.write_case(r);
  EXPECT_EQ(store.read_cases().size(), 1u);
  EXPECT_EQ(store.read_case("a").status, Status::kOk);
  EXPECT_EQ(store.read_case("a").samples.size(), 3u);
  sqlite::Database db(directory_ + "/results.db", sqlite::Database::Mode::kRead);
  auto s = db.prepare("SELECT group_concat(status) FROM trials");
  ASSERT_TRUE(s.step());
  EXPECT_EQ(s.text(0), "timeout,ok");
}

TEST_F(StoreTest, ASecondWriterIsRefusedWithTheProcessNamed) {
  auto first = std::make_unique<Store>(Store::open_for_writing(directory_));
  EXPECT_EQ(error_of([&] { Store::open_for_writing(directory_); }),
            "[" + directory_ + "] another sweep (process " + std::to_string(::getpid()) +
                ") is writing here; wait for it to end or give another directory");
  first->write_case(full_record("a"));
  EXPECT_EQ(Store::open(directory_).read_cases().size(), 1u);  // readers may
  first.reset();
  Store::open_for_writing(directory_).write_case(full_record("b"));
  EXPECT_EQ(Store::open(directory_).read_cases().size(), 2u);
}

TEST_F(StoreTest, AKilledWriterLosesAtMostTheCaseThatItWasWriting) {
  const pid_t child = ::fork();
  if (child == 0) {
    Store store = Store::open_for_writing(directory_);
    store.write_case(full_record("a"));
    store.write_case(full_record("b"));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(Store::open(directory_).finished_ids(), (std::vector<std::string>{"a", "b"}));
  // A damaged tail of the log costs the last case alone.
  const fs::path log = directory_ + "/results.db-wal";
  ASSERT_TRUE(fs::exists(log));
  fs::resize_file(log, fs::file_size(log) - 100);
  Store store = Store::open_for_writing(directory_);
  EXPECT_EQ(store.finished_ids(), std::vector<std::string>{"a"});
  store.write_case(full_record("b"));
  expect_same(store.read_case("b"), full_record("b"));
}

TEST_F(StoreTest, WhatIsNotAResultDirectoryIsNamed) {
  EXPECT_THAT(error_of([&] { Store::open(directory_); }), HasSubstr("does not exist"));
  fs::create_directories(directory_);
  EXPECT_THAT(error_of([&] { Store::open(directory_); }), HasSubstr("holds no results.db"));
  std::ofstream(directory_ + "/results.db") << std::string(8192, 'x');
  EXPECT_THAT(error_of([&] { Store::open(directory_); }),
              testing::AllOf(HasSubstr("results.db] file is not a database"), HasSubstr("give the directory")));
  EXPECT_THAT(error_of([&] { Store::open_for_writing(directory_); }), HasSubstr("not a database"));
  fs::remove(directory_ + "/results.db");
  { sqlite::Database(directory_ + "/results.db", sqlite::Database::Mode::kWrite).run("CREATE TABLE t (x)"); }
  EXPECT_THAT(error_of([&] { Store::open(directory_); }), HasSubstr("another program"));
  std::ofstream(directory_ + "/file") << "x";
  EXPECT_THAT(error_of([&] { Store::open_for_writing(directory_ + "/file"); }), HasSubstr("not a directory"));
}

TEST_F(StoreTest, ANewerSchemaIsRefused) {
  { Store::open_for_writing(directory_).write_case(full_record("a")); }
  {
    sqlite::Database(directory_ + "/results.db", sqlite::Database::Mode::kWrite)
        .run("UPDATE schema_version SET version = 99");
  }
  EXPECT_THAT(error_of([&] { Store::open(directory_); }), HasSubstr("newer shardscope (schema 99, this one knows 2)"));
  EXPECT_THAT(error_of([&] { Store::open_for_writing(directory_); }), HasSubstr("newer"));
}

TEST_F(StoreTest, ATruncatedFileIsNamedAsDamaged) {
  {
    Store store = Store::open_for_writing(directory_);
    for (const char* id : {"a", "b", "c", "d"}) store.write_case(full_record(id));
  }
  fs::resize_file(directory_ + "/results.db", fs::file_size(directory_ + "/results.db") / 2);
  EXPECT_THAT(error_of([&] { Store::open(directory_).read_cases(Store::Detail::kAll); }),
              HasSubstr("the file is damaged; restore a copy"));
}

TEST_F(StoreTest, AFinishedSweepReadsFromADirectoryThatCannotBeWritten) {
  { Store::open_for_writing(directory_).write_case(full_record("a")); }
  EXPECT_FALSE(fs::exists(directory_ + "/results.db-wal"));
  fs::permissions(directory_, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(Store::open(directory_).read_cases().size(), 1u);
  fs::permissions(directory_, fs::perms::owner_all);
}

// Time of the processor, so that what else runs on the machine does not count; the file is in the page cache.
TEST_F(StoreTest, TwoHundredCasesReadWithinATenthOfASecond) {
  {
    Store store = Store::open_for_writing(directory_);
    CaseRecord r = full_record("x");
    r.steps.assign(20, r.steps[0]);
    r.unit_metrics.assign(20, r.unit_metrics[0]);
    r.partition_details.assign(60, r.partition_details[0]);
    r.unit_table.assign(10, r.unit_table[0]);
    for (int i = 0; i < 33; ++i) r.settings.emplace_back(std::string("s").append(std::to_string(i)), "v");
    for (int i = 0; i < 200; ++i) {
      r.id = std::string("case-").append(std::to_string(i));
      store.write_case(r);
    }
  }
  std::clock_t best = std::numeric_limits<std::clock_t>::max();
  for (int attempt = 0; attempt < 5; ++attempt) {
    const std::clock_t begin = std::clock();
    EXPECT_EQ(Store::open(directory_).read_cases().size(), 200u);
    best = std::min(best, std::clock() - begin);
  }
  RecordProperty("best_us", static_cast<int>(best * 1'000'000 / CLOCKS_PER_SEC));
  EXPECT_LE(best, CLOCKS_PER_SEC / 10 * testing_support::kSlowdown);
}

TEST(SpanCodec, DamagedBytesAreAnErrorAndNeverACrash) {
  const std::string good = encode_spans(some_spans(0, 50));
  expect_same_spans(decode_spans(good), some_spans(0, 50));
  expect_same_spans(decode_spans(encode_spans({})), {});
  EXPECT_LT(good.size(), 50u * 24);
  for (std::size_t i = 0; i < good.size(); ++i) EXPECT_THROW(decode_spans(good.substr(0, i)), fsdp::ConfigError) << i;
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x55);
    EXPECT_THROW(decode_spans(bad), fsdp::ConfigError) << i;
  }
}

TEST(Status, NamesReadBack) {
  for (int i = 0; i <= static_cast<int>(Status::kSkipped); ++i) {
    const auto s = static_cast<Status>(i);
    EXPECT_EQ(status_from(std::string(name_of(s))), s);
  }
  EXPECT_EQ(status_from("fine"), std::nullopt);
}

}  // namespace
}  // namespace harness
