#include "harness/trial/run_secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "fsdp/core/errors.h"
#include "harness/trial/environment.h"

namespace harness {
namespace {
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

const std::string kSecret = "0123456789abcdef and more";

class RunSecret : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    fs::permissions(folder_, fs::perms::owner_all);
    two_hosts_ = {"torchrun", 0, 4, 0, 2, "host0", 29'500};
    one_host_ = {"torchrun", 0, 2, 0, 2, "host0", 29'500};
    one_host_.one_host = true;
    session_ = {{"XDG_RUNTIME_DIR", folder_}};
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string file(const std::string& content, mode_t mode) const {
    const std::string path = folder_ + "/given";
    std::ofstream(path) << content;
    chmod(path.c_str(), mode);
    return path;
  }
  template <class E>
  static std::string error_of(const RankPlace& place, const EnvironmentMap& e) {
    try {
      return "no error, but " + run_secret(place, e);
    } catch (const E& error) {
      return error.what();
    }
  }

  const std::string folder_ = testing::TempDir() + "shardscope_secret_" + std::to_string(getpid());
  RankPlace one_host_, two_hosts_;
  EnvironmentMap session_;
};

TEST_F(RunSecret, TheVariableComesFirstThenTheFile) {
  const std::string path = file("a secret of the file, long\nnot this\n", 0600);
  EXPECT_EQ(run_secret(two_hosts_, {{"SHARDSCOPE_SECRET_FILE", path}}), "a secret of the file, long");
  EXPECT_EQ(run_secret(two_hosts_, {{"SHARDSCOPE_SECRET_FILE", path}, {"SHARDSCOPE_SECRET", kSecret}}), kSecret);
}

TEST_F(RunSecret, SeveralHostsWithoutOneEndWithTheCommandThatMakesOne) {
  const std::string error = error_of<fsdp::ConfigError>(two_hosts_, session_);
  EXPECT_THAT(error, HasSubstr("umask 077; openssl rand -hex 32"));
  EXPECT_THAT(error, HasSubstr("SHARDSCOPE_SECRET_FILE="));
  two_hosts_.master_addr = "127.0.0.1";  // then it is one host
  EXPECT_EQ(run_secret(two_hosts_, session_).size(), 64u);
}

TEST_F(RunSecret, AFileThatOthersMayReadOrThatIsNoneIsRefusedAndNotShown) {
  for (const mode_t mode : {0640, 0604, 0660}) {
    const std::string error =
        error_of<fsdp::ConfigError>(two_hosts_, {{"SHARDSCOPE_SECRET_FILE", file(kSecret, mode)}});
    EXPECT_THAT(error, HasSubstr("chmod 600"));
    EXPECT_THAT(error, Not(HasSubstr(kSecret)));
  }
  EXPECT_THAT(error_of<fsdp::ConfigError>(two_hosts_, {{"SHARDSCOPE_SECRET_FILE", folder_}}), HasSubstr("no file"));
  EXPECT_THAT(error_of<fsdp::ConfigError>(two_hosts_, {{"SHARDSCOPE_SECRET_FILE", folder_ + "/absent"}}),
              HasSubstr("No such file"));
}

TEST_F(RunSecret, AShortOneIsRefusedAndNotShown) {
  const std::string error = error_of<fsdp::ConfigError>(one_host_, {{"SHARDSCOPE_SECRET", "hunter2"}});
  EXPECT_THAT(error, HasSubstr("7 characters"));
  EXPECT_THAT(error, Not(HasSubstr("hunter2")));
}

TEST_F(RunSecret, RanksOfOneHostMakeOneFileThatIsTheirsAlone) {
  std::vector<std::string> secrets(16);
  std::vector<std::thread> ranks;
  for (std::string& s : secrets) ranks.emplace_back([&] { s = run_secret(one_host_, session_); });
  for (std::thread& t : ranks) t.join();
  EXPECT_EQ(std::set<std::string>(secrets.begin(), secrets.end()).size(), 1u);
  struct stat s {};
  ASSERT_EQ(stat((folder_ + "/shardscope/secret").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ + "/shardscope"), fs::directory_iterator()), 1);
}

TEST_F(RunSecret, AFolderThatOthersMayEnterOrALinkIsNotUsed) {
  EnvironmentMap e = {{"TMPDIR", folder_}};
  const std::string mine = folder_ + "/shardscope-" + std::to_string(geteuid());
  fs::create_directory(mine);
  fs::permissions(mine, fs::perms::owner_all | fs::perms::group_read);
  EXPECT_THAT(error_of<fsdp::EnvironmentError>(one_host_, e), HasSubstr("mode 700"));
  fs::remove(mine);
  fs::create_directory(folder_ + "/elsewhere");
  fs::permissions(folder_ + "/elsewhere", fs::perms::owner_all);
  fs::create_directory_symlink(folder_ + "/elsewhere", mine);
  EXPECT_THAT(error_of<fsdp::EnvironmentError>(one_host_, e), HasSubstr("mode 700"));
  fs::remove(mine);
  fs::create_directory(mine);
  fs::permissions(mine, fs::perms::owner_all);
  std::ofstream(folder_ + "/theirs") << kSecret;
  fs::create_symlink(folder_ + "/theirs", mine + "/secret");
  EXPECT_THAT(error_of<fsdp::EnvironmentError>(one_host_, e), HasSubstr("/secret can be neither read nor made"));
}

TEST_F(RunSecret, ASessionFolderThatIsNotThereLeavesTheTemporaryOne) {
  EXPECT_EQ(run_secret(one_host_, {{"XDG_RUNTIME_DIR", folder_ + "/absent"}, {"TMPDIR", folder_}}).size(), 64u);
}

TEST_F(RunSecret, IsNotAmongTheVariablesThatARowRecords) {
  setenv("SHARDSCOPE_SECRET", kSecret.c_str(), 1);
  setenv("SHARDSCOPE_RECORDED", "1", 1);
  const auto recorded = host_environment();
  unsetenv("SHARDSCOPE_SECRET");
  unsetenv("SHARDSCOPE_RECORDED");
  EXPECT_TRUE(recorded.contains("env.SHARDSCOPE_RECORDED"));
  for (const auto& [name, value] : recorded) EXPECT_THAT(value, Not(HasSubstr(kSecret))) << name;
}

}  // namespace
}  // namespace harness
