// What the launcher and its ranks say to each other: one JSON document a line over a stream socket that the rank inherits.
//
//   rank -> launcher   {"event":"ready","pid":P}                         models built, before the first warm-up step
//                      {"event":"repetition","ns":T,"cpu_ns":C}          one untraced repetition is done (steps together)
//                      {"event":"result", ...RankResult...}              the end of a good run
//                      {"event":"failed","status":"oom|timeout|comm_error|config_error|crashed","reason":"...",
//                       "cause":"unit, pass, category","last_collective":"..."}
//   launcher -> rank   {"do":"repeat"}   one more untraced repetition
//                      {"do":"trace"}    one traced repetition, then the result
//                      {"do":"finish"}   no tracing: the result
// A rank that sees its socket close ends at once. Job description (first line the launcher writes): RankJob.
#pragma once
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
  // Rendezvous. local: an inherited memfd holds the shared memory of all ranks. Otherwise a TCPStore at host:port.
  int shared_memory_fd = -1;
  std::string master_host;
  int master_port = 0;
};
std::string to_json_line(const RankJob& job);
RankJob rank_job_from_json(const std::string& line);

struct RankResult {
  int rank = 0;
  std::vector<double> losses;                    // local means: the launcher averages over ranks
  std::vector<double> gradient_square_sums;      // this rank's share of the squared global norm, by step
  fsdp::MemoryPeak peak;
  fsdp::BytesByCategory category_peaks{};
  std::string peak_cause;
  std::vector<UnitRecord> units;
  std::vector<fsdp::Span> spans;                 // traced repetition, empty without
  std::vector<fsdp::Nanos> traced_step_ns;
  std::int64_t collectives_per_step = 0;
  fsdp::Bytes communicated_bytes_per_step = 0;
  std::vector<std::string> warnings;
  std::map<std::string, std::string> environment;  // LibTorch version, CPU capability, threads, ...
};
std::string to_json_line(const RankResult& result);   // with "event":"result"
RankResult rank_result_from_json(const std::string& line);

}  // namespace harness
