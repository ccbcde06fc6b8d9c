// GPT-2, and the classifier that has its blocks over one large table.
#include "harness/workload/describe.h"

namespace harness {

using fsdp::ModuleId;
using fsdp::ModuleTree;

void add_gpt2_block(ModuleTree& tree, ModuleId list, std::int64_t number, const ModelSettings& m) {
  const ModuleId block = add_block_module(tree, list, number, "GPT2Block");
  const ModuleId attention_norm = add_norm(tree, block, "ln_1", "LayerNorm", m.dim, true);
  tree.modules[attention_norm].is_sublayer_start = true;
  const ModuleId attention = tree.add_module(block, "attn", "GPT2Attention");
  add_conv1d(tree, attention, "c_attn", m.dim, 3 * m.dim);
  add_conv1d(tree, attention, "c_proj", m.dim, m.dim);

  const ModuleId mlp_norm = add_norm(tree, block, "ln_2", "LayerNorm", m.dim, true);
  tree.modules[mlp_norm].is_sublayer_start = true;
  const ModuleId mlp = tree.add_module(block, "mlp", "GPT2MLP");
  add_conv1d(tree, mlp, "c_fc", m.dim, m.ffn);
  add_conv1d(tree, mlp, "c_proj", m.ffn, m.dim);
}

CausalNames gpt2_names() {
  return {"GPT2LMHeadModel", "transformer", "GPT2Model", "wte", "wpe", "h", "ln_f", "LayerNorm", "lm_head"};
}

ModuleTree describe_gpt2(const ModelSettings& m) { return describe_causal(gpt2_names(), m, add_gpt2_block); }

ModuleTree describe_classifier(const ModelSettings& m) {
  ModuleTree tree;
  const ModuleId root = tree.add_module(-1, "", "EmbeddingClassifier");
  add_embedding(tree, root, "embedding", m.vocab, m.dim);
  const ModuleId blocks = tree.add_module(root, "h", "ModuleList");
  for (std::int64_t l = 0; l < m.layers; ++l) add_gpt2_block(tree, blocks, l, m);
  add_norm(tree, root, "ln_f", "LayerNorm", m.dim, true);
  add_linear(tree, root, "score", m.dim, m.classes, true);
  return tree;
}

}  // namespace harness
