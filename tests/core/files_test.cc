#include "fsdp/core/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>
#include <vector>

#include "fsdp/core/errors.h"

namespace fsdp {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class FilesTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "files_" + std::to_string(::getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string at(const std::string& name) const { return directory_ + "/" + name; }
  static std::string text_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  static void write_whole(const std::string& path, const std::string& text) {
    NewFile file(path);
    file.remove_unfinished();
    file.write(text);
    file.commit();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& e : fs::directory_iterator(directory_)) out.push_back(e.path().filename());
    std::sort(out.begin(), out.end());
    return out;
  }
  static std::string error_of(const std::function<void()>& act) {
    try {
      act();
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  }

  std::string directory_;
};

TEST_F(FilesTest, SmallFilesAreReadUpToTheirBound) {
  put(at("a"), "12345678");
  EXPECT_EQ(read_small(at("a"), 8).text, "12345678");
  EXPECT_EQ(read_small(at("a"), 7).problem, "is larger than 7B");
  EXPECT_EQ(read_small(at("a"), 7).text, "");
  EXPECT_EQ(read_small(at("b"), 8).problem, "does not exist");
  EXPECT_EQ(read_small(at("a") + "/b", 8).problem, "does not exist");
}

TEST_F(FilesTest, WhatIsNoFileIsNamedAndNotRead) {
  EXPECT_EQ(read_small(directory_, 8).problem, "is a directory");
  EXPECT_EQ(read_small("/dev/zero", 8).problem, "is a device");
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  EXPECT_THAT(read_small(at("pipe"), 8).problem, HasSubstr("is a pipe"));
}

TEST_F(FilesTest, APipeIsReadWhereThatIsAllowedAndNoFurtherThanItsBound) {
  for (const std::size_t limit : {std::size_t{100'000}, std::size_t{10}}) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    std::thread writer([&] {
      std::signal(SIGPIPE, SIG_IGN);
      const std::string text(90'000, 'x');
      for (std::size_t done = 0; done < text.size();) {
        const ssize_t n = ::write(ends[1], text.data() + done, text.size() - done);
        if (n <= 0) break;
        done += static_cast<std::size_t>(n);
      }
      ::close(ends[1]);
    });
    const SmallFile read = read_small("/dev/fd/" + std::to_string(ends[0]), limit, Pipes::kRead);
    ::close(ends[0]);
    writer.join();
    EXPECT_EQ(read.text.size(), limit > 10 ? 90'000u : 0u);
    EXPECT_EQ(read.problem.empty(), limit > 10);
  }
}

TEST_F(FilesTest, ALinkOfTheNameIsReplacedAndNeverFollowed) {
  put(at("victim"), "precious");
  fs::create_symlink("victim", at("page"));
  fs::create_symlink("victim", at("page.part"));
  fs::create_symlink("victim", at("page.tmp"));
  write_whole(at("page"), "new");
  EXPECT_EQ(text_of(at("victim")), "precious");
  EXPECT_EQ(text_of(at("page")), "new");
  EXPECT_FALSE(fs::is_symlink(at("page")));
}

TEST_F(FilesTest, AFolderThatIsALinkIsRefusedWhereResultsNeedTheirOwn) {
  fs::create_directory(at("elsewhere"));
  fs::create_symlink("elsewhere", at("traces"));
  put(at("logs"), "a file");
  const Folder folder = Folder::open(directory_);
  EXPECT_THAT(error_of([&] { (void)folder.inner("traces"); }), HasSubstr("traces] is a link or a file"));
  EXPECT_THAT(error_of([&] { (void)folder.inner("logs"); }), HasSubstr("logs] is a link or a file"));
  EXPECT_THAT(error_of([&] { NewFile(at("traces") + "/x", false); }), HasSubstr("cannot be written"));
  EXPECT_EQ(folder.inner("fresh").path(), at("fresh"));
  EXPECT_TRUE(fs::is_directory(at("fresh")));
}

TEST_F(FilesTest, DevicesAndPipesAreNotWrittenTo) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  fs::create_symlink("/dev/null", at("null"));
  for (const char* name : {"pipe", "null"})
    EXPECT_THAT(error_of([&] { write_whole(at(name), "x"); }), HasSubstr("is not a plain file"));
  EXPECT_TRUE(fs::is_fifo(at("pipe")));
}

TEST_F(FilesTest, WithoutCommitNothingIsLeft) {
  { NewFile(at("a")).write("half"); }
  EXPECT_THAT(names(), testing::IsEmpty());
}

TEST_F(FilesTest, WhatAKilledWriterLeftIsTakenAwayByTheNextAndALivingOneIsLeftAlone) {
  const pid_t child = ::fork();
  if (child == 0) {
    NewFile file(at("a"));
    file.write("half");
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_EQ(names().size(), 1u);
  NewFile living(at("a"));
  living.write("whole, later");
  write_whole(at("a"), "whole");
  EXPECT_EQ(names().size(), 2u);  // the living one's and the file
  living.commit();
  EXPECT_THAT(names(), testing::ElementsAre("a"));
  EXPECT_EQ(text_of(at("a")), "whole, later");
}

TEST_F(FilesTest, ManyWritersAtATimeAllSucceed) {
  std::vector<std::thread> writers;
  std::atomic<int> failed{0};
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < 25; ++i) {
        try {
          write_whole(at("page"), std::string(1000, static_cast<char>('a' + w)));
        } catch (const Error&) {
          ++failed;
        }
      }
    });
  }
  for (std::thread& w : writers) w.join();
  EXPECT_EQ(failed, 0);
  const std::string text = text_of(at("page"));
  EXPECT_EQ(text, std::string(1000, text.at(0)));
  EXPECT_THAT(names(), testing::ElementsAre("page"));
}

TEST_F(FilesTest, AFileThatReachesTheLimitOfItsSizeSaysSo) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1024, 1024};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_whole(at("a"), std::string(5000, 'x'));
    } catch (const EnvironmentError& e) {
      ::_exit(std::string(e.what()).find("raise `ulimit -f`") == std::string::npos ? 2 : 7);
    }
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_THAT(names(), testing::IsEmpty());
}

TEST_F(FilesTest, ANameAsLongAsNamesMayBeIsWritten) {
  const std::string name(250, 'n');
  write_whole(at(name), "x");
  EXPECT_EQ(text_of(at(name)), "x");
}

}  // namespace
}  // namespace fsdp
