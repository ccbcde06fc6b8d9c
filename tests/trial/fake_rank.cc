// Speaks the protocol of shardscope-rank without doing anything, and misbehaves on command.
//   FAKE_RANK="RANK ACTION PHASE[;...]"   PHASE: start, repetition1, repetition2, ..., trace
// A repetition of rank r, the n-th, takes (r + 1) * 1000 * n nanoseconds per step by its own account. Spans: see
// spans_of.
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include "harness/trial/join_messages.h"
#include "harness/trial/messages.h"

namespace {
using harness::RankCommand;
using harness::RankEvent;

int control = -1;
std::string unread;

bool read_line(std::string& line) {
  std::size_t end;
  while ((end = unread.find('\n')) == std::string::npos) {
    char buffer[4096];
    const ssize_t n = read(control, buffer, sizeof buffer);
    if (n <= 0) return false;
    unread.append(buffer, static_cast<std::size_t>(n));
  }
  line = unread.substr(0, end);
  unread.erase(0, end + 1);
  return true;
}

void say_raw(const std::string& line) {
  const std::string text = line + "\n";
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = write(control, text.data() + at, text.size() - at);
    if (n <= 0) std::exit(1);
    at += static_cast<std::size_t>(n);
  }
}
void say(const RankEvent& e) { say_raw(to_json_line(e)); }

[[noreturn]] void fail(harness::Status status, const std::string& reason, const std::string& cause) {
  RankEvent e;
  e.kind = RankEvent::Kind::kFailed;
  e.status = status;
  e.reason = reason;
  e.cause = cause;
  if (status == harness::Status::kOom) e.held = 4096;
  e.where = "repetition 1, step 0; last collective all_gather of root, forward";
  say(e);
  std::exit(1);
}

void say_where(const std::string& where) {
  RankEvent e;
  e.kind = RankEvent::Kind::kWhere;
  e.where = where;
  say(e);
}

// As in a rank, a thread of its own answers, whatever the main one does.
void answer_reports() {
  std::thread([] {
    std::string line;
    while (read_line(line)) {
      if (harness::rank_command_from_json(line) == RankCommand::kReport)
        say_where("last collective reduce_scatter of model.layers.1, backward");
    }
    std::_Exit(0);
  }).detach();
}

[[noreturn]] void hang() {
  answer_reports();
  while (true) pause();
}

// Works for as long as it is let.
[[noreturn]] void busy() {
  answer_reports();
  const auto launcher = getppid();
  while (getppid() == launcher) {
  }
  std::exit(0);
}

void act(const std::string& action) {
  if (action == "kill") raise(SIGKILL);
  if (action == "kill_later") usleep(100'000), raise(SIGKILL);
  if (action == "abort") std::cerr << "terminate called after nothing\n", std::abort();
  if (action == "exit") std::cerr << "no such luck\n", std::exit(3);
  if (action == "hang") hang();
  if (action == "stop") raise(SIGSTOP);
  if (action == "busy") busy();
  if (action == "timeout_later") usleep(300'000), fail(harness::Status::kTimeout, "[comm] no arrival of a rank", "");
  if (action == "mute")
    signal(SIGTERM, SIG_IGN), [] {
      while (true) pause();
    }();
  if (action == "close")
    close(control), signal(SIGTERM, SIG_IGN), [] {
      while (true) pause();
    }();
  if (action == "garbage") say_raw("{\"event\":");
  if (action == "comm_error") fail(harness::Status::kCommError, "[comm] rank 1 has gone", "");
  if (action == "timeout") fail(harness::Status::kTimeout, "[comm] no arrival of rank 1", "");
  if (action == "oom")
    fail(harness::Status::kOom, "[memory] root, forward, unsharded parameters: 64 B",
         "root, forward, unsharded parameters");
}

void phase(int rank, const std::string& name) {
  const char* plan = std::getenv("FAKE_RANK");
  std::istringstream entries(plan != nullptr ? plan : "");
  for (std::string entry; std::getline(entries, entry, ';');) {
    std::istringstream words(entry);
    int who;
    std::string action, when;
    words >> who >> action >> when;
    if (who == rank && when == name) act(action);
  }
}

// Step s of rank r: [0, 100 + 10 r + s), an all-gather [0, 40) that the compute [30, end) waits for and hides for 10.
std::vector<fsdp::Span> spans_of(int rank, int steps) {
  std::vector<fsdp::Span> spans;
  fsdp::Nanos at = 1'000'000;
  std::uint32_t id = 0;
  for (int s = 0; s < steps; ++s) {
    const fsdp::Nanos end = at + 100 + 10 * rank + s;
    spans.push_back(
        {++id, rank, s, fsdp::Lane::kHost, fsdp::SpanKind::kStep, -1, fsdp::Pass::kNone, at, at, end, 0, {}});
    spans.push_back({++id,
                     rank,
                     s,
                     fsdp::Lane::kAllGather,
                     fsdp::SpanKind::kAllGather,
                     0,
                     fsdp::Pass::kForward,
                     at,
                     at,
                     at + 40,
                     256,
                     {}});
    spans.push_back({++id,
                     rank,
                     s,
                     fsdp::Lane::kCompute,
                     fsdp::SpanKind::kCompute,
                     0,
                     fsdp::Pass::kForward,
                     at + 30,
                     at + 30,
                     end,
                     0,
                     {}});
    at = end;
  }
  return spans;
}

void result(const harness::RankJob& job, bool traced) {
  RankEvent e;
  e.kind = RankEvent::Kind::kResult;
  harness::RankResult& r = e.result;
  r.rank = job.rank;
  r.losses = {4.0 + job.rank, 2.0 + job.rank};
  r.gradient_square_sums = {9.0, 9.0 - 2.0 * job.rank};
  r.peak.total = 900 + 60 * job.rank;
  r.peak_cause = "unit of rank " + std::to_string(job.rank);
  r.collectives_per_step = 5;
  r.communicated_bytes_per_step = 640;
  r.warnings = {"a warning of every rank"};
  if (job.local_rank >= 0)
    r.warnings.push_back("rank " + std::to_string(job.rank) + " is local rank " + std::to_string(job.local_rank));
  r.environment = {{"libtorch", "none"}};
  if (traced) r.spans = spans_of(job.rank, job.settings.steps);
  say(e);
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string(argv[i]) == "--control-fd") control = std::atoi(argv[i + 1]);
  }
  std::string line;
  if (!read_line(line)) return 1;
  while (harness::preparation_from_json(line))  // of a rank that a launcher has started
    if (!read_line(line)) return 1;
  const harness::RankJob job = harness::rank_job_from_json(line);
  std::cout << "pid " << getpid() << " cwd-independent start" << std::endl;
  phase(job.rank, "start");
  RankEvent ready;
  ready.pid = getpid();
  say(ready);
  int repetitions = 0;
  while (read_line(line)) {
    const RankCommand command = harness::rank_command_from_json(line);
    if (command == RankCommand::kReport) {
      say_where("waiting for the launcher");
    } else if (command == RankCommand::kRepeat) {
      phase(job.rank, "repetition" + std::to_string(++repetitions));
      RankEvent e;
      e.kind = RankEvent::Kind::kRepetition;
      e.ns = fsdp::Nanos{1000} * (job.rank + 1) * repetitions * job.settings.steps;
      say(e);
    } else if (command == RankCommand::kTrace || command == RankCommand::kFinish) {
      phase(job.rank, "trace");
      result(job, command == RankCommand::kTrace);
    }
  }
  return 0;
}
