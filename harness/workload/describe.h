// The torch-free builders, one for each family: ModelSettings -> ModuleTree. Module paths and types as in Hugging Face.
#pragma once
#include <string>

#include "fsdp/plan/module_tree.h"
#include "harness/workload/model_settings.h"

namespace harness {

fsdp::ModuleTree describe_llama(const ModelSettings& m);
fsdp::ModuleTree describe_gpt_neox(const ModelSettings& m);

// What the families share. Each returns the new module's id.
fsdp::ModuleId add_linear(fsdp::ModuleTree& tree, fsdp::ModuleId parent, const std::string& name, fsdp::Count in,
                          fsdp::Count out, bool bias);
fsdp::ModuleId add_embedding(fsdp::ModuleTree& tree, fsdp::ModuleId parent, const std::string& name, fsdp::Count rows,
                             fsdp::Count dim);
fsdp::ModuleId add_norm(fsdp::ModuleTree& tree, fsdp::ModuleId parent, const std::string& name, const std::string& type,
                        fsdp::Count dim, bool bias);

}  // namespace harness
