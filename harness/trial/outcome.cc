#include "harness/trial/outcome.h"

#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstring>
#include <regex>
#include <utility>

#include "harness/sweep/quantities.h"

namespace harness {
namespace {

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(number);
}

// Lower explains higher.
int rank_of_cause(const Failure& f) {
  switch (f.kind) {
    case Failure::Kind::kSignal:
      return 0;
    case Failure::Kind::kExit:
      return 3;
    case Failure::Kind::kClosed:
      return 5;
    case Failure::Kind::kReported:
      break;
  }
  switch (f.status) {
    case Status::kOom:
      return 1;
    case Status::kConfigError:
    case Status::kSkipped:  // the machine cannot
      return 2;
    case Status::kCrashed:
      return 3;
    case Status::kTimeout:
      return 4;
    default:
      return 6;
  }
}

std::string sentence_of(const Failure& f) {
  std::string text = "rank " + std::to_string(f.rank);
  text += f.kind == Failure::Kind::kReported ? (f.status == Status::kOom ? " ran out of memory: " : ": ") : " ";
  // Of an out-of-memory the tag says nothing new.
  text += f.status == Status::kOom && f.reason.starts_with("[memory] ") ? f.reason.substr(9) : f.reason;
  if (!f.where.empty()) text += " (" + f.where + ")";
  const std::string log = last_lines(f.log);
  if (!log.empty()) text += "; its log ends: " + log;
  return text;
}
}  // namespace

std::string last_lines(const std::string& log, std::size_t limit) {
  std::string line;
  for (const char c : log) {
    const bool blank = std::isspace(static_cast<unsigned char>(c)) != 0 || !std::isprint(static_cast<unsigned char>(c));
    if (c == '\n') {
      if (!line.empty() && !line.ends_with(" | ")) line += " | ";
    } else if (!blank || (!line.empty() && line.back() != ' ')) {
      line += blank ? ' ' : c;
    }
  }
  while (!line.empty() && (line.back() == ' ' || line.back() == '|')) line.pop_back();
  return line.size() > limit ? "..." + line.substr(line.size() - limit) : line;
}

namespace {
// Programs raise these themselves, when they err.
bool by_itself(int signal) {
  for (const int s : {SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGBUS, SIGTRAP, SIGSYS})
    if (signal == s) return true;
  return false;
}

// What C and C++ libraries say of a machine that has no more of something.
std::string shortage_in(const std::string& text) {
  constexpr std::pair<const char*, const char*> kWords[] = {
      {"Cannot allocate memory", "no memory on the host"},
      {"std::bad_alloc", "no memory on the host"},
      {"failed to map segment", "no memory on the host"},
      {"Resource temporarily unavailable", "no processes or memory left on the host"},
      {"Too many open files", "no descriptors left"},
      {"No space left on device", "no room on a disk"},
      {"Disk quota exceeded", "no room on a disk"},
      {"cannot open shared object file", "this machine or build"}};
  for (const auto& [words, trouble] : kWords)
    if (text.find(words) != std::string::npos) return trouble;
  return {};
}
}  // namespace

std::string passing_trouble(const Failure& f) {
  if (!f.passing.empty()) return f.passing;
  const bool reported = f.kind == Failure::Kind::kReported;
  if (reported && f.status == Status::kSkipped) return "this machine or build";
  // An allocation of the system, not one of the budget, which has a cause.
  if (reported && f.status == Status::kOom && f.cause.empty()) return "no memory on the host";
  return f.status == Status::kCrashed ? shortage_in(f.reason + "\n" + f.log) : std::string();
}

Failure failure_of_exit(int rank, int wait_status, const std::string& doing, const std::string& log, bool host_oom) {
  if (host_oom)
    return {Status::kOom,
            rank,
            Failure::Kind::kSignal,
            "was killed by the kernel " + doing + ": the host, or the control group, has no more memory",
            "host memory",
            "",
            "",
            -1,
            "no memory on the host"};
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    std::string reason = "was killed by " + signal_name(number) + " " + doing;
    // SIGKILL leaves nothing to say; the other signals come with a message of the library that raised them.
    return {Status::kCrashed,
            rank,
            Failure::Kind::kSignal,
            reason,
            "",
            number == SIGKILL ? "" : log,
            "",
            -1,
            by_itself(number) ? "" : "a signal from outside"};
  }
  return {Status::kCrashed,
          rank,
          Failure::Kind::kExit,
          "ended with exit code " + std::to_string(WEXITSTATUS(wait_status)) + " " + doing,
          "",
          log,
          ""};
}

bool decisive(const std::vector<Failure>& failures) {
  return std::any_of(failures.begin(), failures.end(), [](const Failure& f) { return rank_of_cause(f) <= 2; });
}

Outcome outcome_of(const std::vector<Failure>& failures) {
  const auto cause = std::min_element(failures.begin(), failures.end(), [](const Failure& a, const Failure& b) {
    return rank_of_cause(a) < rank_of_cause(b);
  });
  return {cause->status, sentence_of(*cause), cause->cause, cause->rank, cause->held, passing_trouble(*cause)};
}

bool may_be_due_to_another(const std::vector<Failure>& failures) {
  return std::all_of(failures.begin(), failures.end(), [](const Failure& f) {
    return f.kind == Failure::Kind::kReported && (f.status == Status::kTimeout || f.status == Status::kCommError);
  });
}

int missing_rank(const std::vector<Failure>& failures) {
  static const std::regex said("rank ([0-9]{1,6}) has not arrived");
  int missing = -1;
  for (const Failure& f : failures) {
    std::smatch found;
    if (!std::regex_search(f.reason, found, said)) continue;
    const int rank = std::stoi(found[1]);
    if (missing >= 0 && rank != missing) return -1;
    missing = rank;
  }
  for (const Failure& f : failures)
    if (f.rank == missing) return -1;
  return missing;
}

Outcome outcome_of_lateness(int rank, const std::string& late, const std::vector<Failure>& failures) {
  return {Status::kTimeout, failures.empty() ? late : late + "; " + outcome_of(failures).reason, "", rank};
}

Outcome outcome_of_silence(const std::vector<Silence>& silent, fsdp::Nanos timeout, const std::string& doing) {
  std::string ranks, details;
  for (const Silence& s : silent) {
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(s.rank);
    details += "; rank " + std::to_string(s.rank) + ": " + (s.where.empty() ? "does not answer" : s.where);
  }
  return {Status::kTimeout,
          "the trial took longer than " + format_nanos(timeout) + ": no answer " + doing + " from rank" +
              (silent.size() == 1 ? " " : "s ") + ranks + details,
          "", silent.empty() ? -1 : silent.front().rank};
}

}  // namespace harness
