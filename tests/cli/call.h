// Calls the real `shardscope` the way a shell does.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cli_test {

struct Called {
  int code = -1;  // exit code, or 128 + signal
  std::string out, err;
  std::int64_t cpu_us = 0;  // of the program and what it waited for
};
using Environment = std::vector<std::pair<std::string, std::string>>;

// A program that is running; `wait` collects it. Output goes to files of the test's temporary directory.
class Call {
 public:
  Call(const std::vector<std::string>& arguments, const Environment& environment = {});
  Called wait();
  void signal(int number) const;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  std::string out_, err_;
};

Called call(const std::vector<std::string>& arguments, const Environment& environment = {});
// The environment in which trials run the fake rank of tests/trial; `plan` is its FAKE_RANK.
Environment fake_rank(const std::string& plan = "");

std::string program();  // the path of shardscope

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& text);
std::string fresh_directory(const std::string& name);  // absent, below the test's temporary directory

}  // namespace cli_test
