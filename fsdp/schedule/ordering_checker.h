// OrderingChecker: proves a verb log free of races, or names the first one. Vector clocks over the lanes: a record
// copies its lane's clock, a wait joins it, every issue follows the host. Checked for each buffer (a unit's shard, a
// place for unsharded parameters, a reduce input, a gradient): every write is ordered after all earlier accesses, every
// read after the write it reads, every release after the last use.
#pragma once
#include <optional>
#include <string>

#include "fsdp/schedule/verb_log.h"

namespace fsdp {

struct OrderingFault {
  std::size_t index;  // of the entry in the log
  std::string
      text;  // "all-gather [all-gather] unit 3 ... overwrites unsharded place 1 while compute [...] may still read it"
};

std::optional<OrderingFault> find_ordering_fault(const VerbLog& log);

}  // namespace fsdp
