#include "harness/workload/describe.h"

namespace harness {

using fsdp::ModuleId;
using fsdp::ModuleTree;

namespace {

// Attention stands between the two norms (Hugging Face registers both norms first), so that a sublayer is a norm and
// what follows it.
void add_layer(ModuleTree& tree, ModuleId layers, std::int64_t number, const ModelSettings& m) {
  const ModuleId layer = tree.add_module(layers, std::to_string(number), "GPTNeoXLayer");
  tree.modules[layer].is_block = true;

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

ModuleTree describe_gpt_neox(const ModelSettings& m) {
  ModuleTree tree;
  const ModuleId root = tree.add_module(-1, "", "GPTNeoXForCausalLM");
  const ModuleId model = tree.add_module(root, "gpt_neox", "GPTNeoXModel");
  const ModuleId table = add_embedding(tree, model, "embed_in", m.vocab, m.dim);
  const ModuleId layers = tree.add_module(model, "layers", "ModuleList");
  for (std::int64_t l = 0; l < m.layers; ++l) add_layer(tree, layers, l, m);
  add_norm(tree, model, "final_layer_norm", "LayerNorm", m.dim, true);
  if (m.tied) {
    const ModuleId head = tree.add_module(root, "embed_out", "Linear");
    tree.share_parameter(head, "weight", tree.modules[table].parameters.front());
  } else {
    add_linear(tree, root, "embed_out", m.dim, m.vocab, false);
  }
  return tree;
}

}  // namespace harness
