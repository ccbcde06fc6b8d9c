#include "tests/cli/call.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace cli_test {
namespace {

std::string temporary(const std::string& name) {
  return testing::TempDir() + "cli_" + std::to_string(::getpid()) + "_" + name;
}

std::int64_t microseconds(const timeval& t) { return std::int64_t{t.tv_sec} * 1'000'000 + t.tv_usec; }

}  // namespace

Call::Call(const std::vector<std::string>& arguments, const Environment& environment) {
  static int count = 0;
  out_ = temporary("out" + std::to_string(++count));
  err_ = temporary("err" + std::to_string(count));
  std::vector<char*> argv = {const_cast<char*>(SHARDSCOPE_PROGRAM)};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ != 0) return;
  ::dup2(::open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
  ::dup2(::open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

Called Call::wait() {
  int status = 0;
  rusage used{};
  ::wait4(pid_, &status, 0, &used);
  Called result{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(out_), read_file(err_),
                microseconds(used.ru_utime) + microseconds(used.ru_stime)};
  std::filesystem::remove(out_);
  std::filesystem::remove(err_);
  return result;
}

void Call::signal(int number) const { ::kill(pid_, number); }

Called call(const std::vector<std::string>& arguments, const Environment& environment) {
  return Call(arguments, environment).wait();
}

Environment fake_rank(const std::string& plan) {
  return {{"SHARDSCOPE_RANK", SHARDSCOPE_FAKE_RANK}, {"FAKE_RANK", plan}};
}

std::string program() { return SHARDSCOPE_PROGRAM; }

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string fresh_directory(const std::string& name) {
  const std::string path = temporary(name);
  std::filesystem::remove_all(path);
  return path;
}

}  // namespace cli_test
