#include "harness/workload/describe.h"

namespace harness {

using fsdp::ModuleId;
using fsdp::ModuleTree;

namespace {

// Attention stands between the two norms (Hugging Face registers both norms first), so that a sublayer is a norm and
// what follows it.
void add_layer(ModuleTree& tree, ModuleId layers, std::int64_t number, const ModelSettings& m) {
  const ModuleId layer = add_block_module(tree, layers, number, "GPTNeoXLayer");
  const ModuleId attention_norm = add_norm(tree, layer, "input_layernorm", "LayerNorm", m.dim, true);
  tree.modules[attention_norm].is_sublayer_start = true;
  const ModuleId attention = tree.add_module(layer, "attention", "GPTNeoXAttention");
  add_linear(tree, attention, "query_key_value", m.dim, 3 * m.dim, true);
  add_linear(tree, attention, "dense", m.dim, m.dim, true);

  const ModuleId mlp_norm = add_norm(tree, layer, "post_attention_layernorm", "LayerNorm", m.dim, true);
  tree.modules[mlp_norm].is_sublayer_start = true;
  const ModuleId mlp = tree.add_module(layer, "mlp", "GPTNeoXMLP");
  add_linear(tree, mlp, "dense_h_to_4h", m.dim, m.ffn, true);
  add_linear(tree, mlp, "dense_4h_to_h", m.ffn, m.dim, true);
}

}  // namespace

CausalNames gpt_neox_names() {
  return {"GPTNeoXForCausalLM", "gpt_neox",  "GPTNeoXModel", "embed_in", "", "layers",
          "final_layer_norm",   "LayerNorm", "embed_out"};
}

ModuleTree describe_gpt_neox(const ModelSettings& m) { return describe_causal(gpt_neox_names(), m, add_layer); }

}  // namespace harness
