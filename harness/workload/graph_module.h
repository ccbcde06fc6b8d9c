// A model that torch.export wrote, as a Module: its tree is that of the file, its forward runs the graph. Torch room.
#pragma once
#include <memory>

#include "fsdp/module/fully_shard.h"
#include "fsdp/module/module.h"
#include "harness/workload/model_settings.h"

namespace harness {

// Inputs in the file's order -> the loss. Named, without values of parameters; buffers have theirs.
std::unique_ptr<fsdp::Module> build_graph(const ModelSettings& m, bool meta);

// This rank's part of the parameters takes the values of the file; without weights there it keeps the rule's.
void load_graph_weights(const ModelSettings& m, fsdp::ShardedModel& sharded);

// Throws fsdp::ConfigError for a module that is called several times: what it kept would be one call's.
void check_graph_checkpoint(const ModelSettings& m);

}  // namespace harness
