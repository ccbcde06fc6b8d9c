// What no family has: units that run in an order of their own, one of them twice or not at all.
#pragma once
#include <memory>
#include <vector>

#include "fsdp/module/module.h"
#include "fsdp/plan/module_tree.h"
#include "harness/workload/model_settings.h"

namespace harness {

// Linear blocks "layers.0", ... (of mlp: layers, dim, classes), each followed by gelu(8 x), and a head. `order`: the
// blocks of a forward. For TrainerSettings::make_model.
std::unique_ptr<fsdp::Module> make_chain(const ModelSettings& m, std::vector<int> order);
fsdp::ModuleTree describe_chain(const ModelSettings& m);

}  // namespace harness
