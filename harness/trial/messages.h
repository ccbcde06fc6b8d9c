// What the launcher and its ranks say to each other: one JSON document a line over a stream socket that the rank
// inherits.
//
//   launcher -> rank   RankJob           the first line
//                      {"do":"repeat"}   one more untraced repetition (the first one: after the warm-up steps)
//                      {"do":"trace"}    one traced repetition, then the result
//                      {"do":"finish"}   no tracing: the result
//                      {"do":"report"}   at any time: say where you are (answered by a thread of its own)
//   rank -> launcher   {"event":"ready","pid":P}                     models built, before the first warm-up step
//                      {"event":"repetition","ns":T,"cpu_ns":C}      one untraced repetition is done (steps together)
//                      {"event":"result", ...RankResult...}          the end of a good run; virtual: "ns" is a step
//                      {"event":"failed","status":"oom|timeout|comm_error|config_error|crashed","reason":"...",
//                       "cause":"unit, pass, category","where":"..."}
//                      {"event":"where","where":"repetition 2, step 3; last collective all_gather of root, forward"}
// A rank that sees its socket close ends at once. Malformed lines: fsdp::CommError.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "fsdp/core/memory_meter.h"
#include "fsdp/core/span.h"
#include "harness/store/records.h"
#include "harness/sweep/settings.h"

namespace harness {

struct RankJob {
  CaseSettings settings;
  int rank = 0, world = 1;
  int local_rank = -1;  // of a rank that a launcher has started, as it says; -1: all ranks are on this machine
  // Rendezvous. local: an inherited memfd holds the shared memory of all ranks. gloo: an address of the network that
  // it uses; the ranks find each other through the launcher (run_store.h).
  int shared_memory_fd = -1;
  std::string master_host;
  bool trace = true;  // virtual: the result carries spans
};
std::string to_json_line(const RankJob& job);
RankJob rank_job_from_json(const std::string& line);

enum class RankCommand { kRepeat, kTrace, kFinish, kReport };
std::string to_json_line(RankCommand command);
RankCommand rank_command_from_json(const std::string& line);

struct RankResult {
  int rank = 0;
  std::vector<double> losses;                // local means: the launcher averages over ranks
  std::vector<double> gradient_square_sums;  // this rank's share of the squared global norm, by step
  fsdp::MemoryPeak peak;
  fsdp::BytesByCategory category_peaks{};
  std::string peak_cause;
  std::vector<fsdp::Span> spans;  // traced repetition, empty without
  std::vector<fsdp::Nanos> traced_step_ns;
  std::int64_t collectives_per_step = 0;
  fsdp::Bytes communicated_bytes_per_step = 0;
  PrefetchCounts prefetch;  // of the last step
  std::vector<std::string> warnings;
  std::map<std::string, std::string> environment;  // LibTorch version, CPU capability, threads, ...
};

// What a rank says. Only the fields of its kind are meaningful.
struct RankEvent {
  enum class Kind { kReady, kRepetition, kResult, kFailed, kWhere } kind = Kind::kReady;
  std::int64_t pid = 0;
  fsdp::Nanos ns = 0, cpu_ns = 0;
  Status status = Status::kCrashed;
  std::string reason, cause;
  fsdp::Bytes held = -1;  // kFailed out of memory: what the rank had when the request failed
  std::string where;      // what the rank was doing: phase, step, last collective
  RankResult result;
};
std::string to_json_line(const RankEvent& event);
RankEvent rank_event_from_json(const std::string& line);

}  // namespace harness
