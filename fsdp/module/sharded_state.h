// Saving and loading the state of a sharded run: master parameters, optimizer moments, the number of steps.
//
// A state is a directory of one safetensors file per rank, rank-00001-of-00004.safetensors. A file holds what its rank
// owns and no lower rank does, as fp32 arrays of one dimension: "NAME/value", and "NAME/m", "NAME/v" where the
// optimizer has moments. The metadata entry NAME says which part of the parameter that is, as JSON: the shape of the
// whole, and the interval [begin, end) of its row-major elements. Padding is never written. Any number of ranks, plan
// and layout can read what any other has written: each rank looks for its own intervals in all files.
//
// A state appears as a whole: files are written beside it, put on disk, and the directories are exchanged in one step.
// A crash before that leaves the previous state as it was.
#pragma once
#include <string>

#include "fsdp/comm/collectives.h"
#include "fsdp/module/sharded_optimizer.h"

namespace fsdp {

// All ranks call both, between steps. `directory` is on storage that all of them see. What fails on one rank throws on
// all: EnvironmentError (storage), ConfigError (the state is of another model, or incomplete).
void save_state(const ShardedModel& model, const ShardedOptimizer& optimizer, Collectives& collectives,
                const std::string& directory);
void load_state(ShardedModel& model, ShardedOptimizer& optimizer, Collectives& collectives,
                const std::string& directory);

}  // namespace fsdp
