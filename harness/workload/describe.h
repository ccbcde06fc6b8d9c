// The torch-free builders, one for each family: ModelSettings -> ModuleTree. Module paths and types as in Hugging Face.
#pragma once
#include <string>
#include <vector>

#include "fsdp/plan/module_tree.h"
#include "harness/workload/model_settings.h"

namespace harness {

struct Family {
  const char* name;
  fsdp::ModuleTree (*describe)(const ModelSettings& m);
  std::vector<std::string> keys;  // of ModelSettings, that `set` may give
  bool ffn_follows = false;       // ffn is 4 dim unless given
};
const std::vector<Family>& families();
// Throws ConfigError with the families there are.
const Family& family_of(const std::string& name);

fsdp::ModuleTree describe_llama(const ModelSettings& m);
fsdp::ModuleTree describe_gpt_neox(const ModelSettings& m);
fsdp::ModuleTree describe_gpt2(const ModelSettings& m);
fsdp::ModuleTree describe_t5(const ModelSettings& m);
fsdp::ModuleTree describe_classifier(const ModelSettings& m);
fsdp::ModuleTree describe_mlp(const ModelSettings& m);

// Of a .pt2: the tree that the file holds.
fsdp::ModuleTree describe_graph(const ModelSettings& m);

// "Llama", "Mistral", "Qwen2", "Qwen3": what the types of a llama form begin with.
std::string llama_prefix(const ModelSettings& m);

// A decoder with a table before and a head after its blocks, by the names that Hugging Face gives it.
struct CausalNames {
  std::string type, model, model_type, table;
  std::string positions;  // empty: none
  std::string blocks, norm, norm_type, head;
};
CausalNames llama_names(const ModelSettings& m);
CausalNames gpt_neox_names();
CausalNames gpt2_names();
// Adds block `number` of the list.
using AddBlock = void (*)(fsdp::ModuleTree& tree, fsdp::ModuleId list, std::int64_t number, const ModelSettings& m);
fsdp::ModuleTree describe_causal(const CausalNames& names, const ModelSettings& m, AddBlock add_block);

// What the families share. Each returns the new module's id.
fsdp::ModuleId add_linear(fsdp::ModuleTree& tree, fsdp::ModuleId parent, const std::string& name, fsdp::Count in,
                          fsdp::Count out, bool bias);
// A linear with its weight as [in, out], as GPT-2 has it.
fsdp::ModuleId add_conv1d(fsdp::ModuleTree& tree, fsdp::ModuleId parent, const std::string& name, fsdp::Count in,
                          fsdp::Count out);
fsdp::ModuleId add_embedding(fsdp::ModuleTree& tree, fsdp::ModuleId parent, const std::string& name, fsdp::Count rows,
                             fsdp::Count dim);
// A module that has nothing but an earlier module's weight.
fsdp::ModuleId add_tied(fsdp::ModuleTree& tree, fsdp::ModuleId parent, const std::string& name, const std::string& type,
                        fsdp::ModuleId owner);
fsdp::ModuleId add_norm(fsdp::ModuleTree& tree, fsdp::ModuleId parent, const std::string& name, const std::string& type,
                        fsdp::Count dim, bool bias);
fsdp::ModuleId add_block_module(fsdp::ModuleTree& tree, fsdp::ModuleId list, std::int64_t number,
                                const std::string& type);
void add_gpt2_block(fsdp::ModuleTree& tree, fsdp::ModuleId list, std::int64_t number, const ModelSettings& m);

}  // namespace harness
