// VerbLog: what the scheduler did, in issue order. The same plan gives the same log on every device; the ordering
// checker proves races absent from it; ranks compare a rolling hash of its collectives.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/core/types.h"

namespace fsdp {

enum class Verb : std::uint8_t {
  kAcquireUnsharded,  // slot = gate slot (-1: kept unit, outside the gate)
  kAllGather,         // writes unsharded(unit) on its lane
  kComputeBegin,      // compute lane reads unsharded(unit) from here ...
  kComputeEnd,        // ... to here (backward: and writes its gradients)
  kReleaseUnsharded,
  kAcquireReduce,  // slot = reduce slot
  kPack,           // compute lane: gradients -> reduce input
  kReduceScatter,  // reads reduce input(unit), writes gradient(unit)
  kAllReduce,
  kReleaseReduce,
  kRecord,  // event recorded on lane
  kWait,    // lane waits for event
  kOptimizerBegin,
  kOptimizerEnd,
  kReleaseGradient,
  kCast,        // all-gather lane: this rank's shard into the full buffer, in the dtype that travels
  kAccumulate,  // compute lane: gradients -> the unit's full gradient of micro-batches that are not reduced
  kCopyOut,     // compute lane: what was gathered -> the full parameters (per-parameter layout)
};
std::string_view name_of(Verb v);

struct VerbEntry {
  Verb verb;
  Lane lane = Lane::kHost;
  UnitId unit = kNoUnit;
  Pass pass = Pass::kNone;
  std::int32_t slot = -1;
  std::uint64_t event = 0;  // kRecord, kWait: a number of the log's own, from 1; the same on every device
  Bytes bytes = 0;
  bool prefetch = false;  // kAllGather: issued ahead of its unit's turn
  friend bool operator==(const VerbEntry&, const VerbEntry&) = default;
};

using VerbLog = std::vector<VerbEntry>;

std::string to_string(const VerbEntry& e);
// One token per collective in issue order, "AG2 AG1 RS2 AG0 RS1 RS0".
std::string collective_order(const VerbLog& log);
// The same with computes, "AG2 AG1 B2 RS2 ...": the order in which the host issued them.
std::string cpu_order(const VerbLog& log);

}  // namespace fsdp
