// T5: an encoder, a decoder that sees it, one table for both and, when tied, for the head. Order of registration as in
// Hugging Face: a sublayer is a T5Layer..., whose norm is registered last and runs first.
#include "harness/workload/describe.h"

namespace harness {

using fsdp::Count;
using fsdp::ModuleId;
using fsdp::ModuleTree;

namespace {

// The first block of a stack owns the relative bias that all of them use.
void add_attention(ModuleTree& tree, ModuleId list, int number, bool cross, bool owns_bias, const ModelSettings& m) {
  const ModuleId layer =
      tree.add_module(list, std::to_string(number), cross ? "T5LayerCrossAttention" : "T5LayerSelfAttention");
  tree.modules[layer].is_sublayer_start = true;
  const ModuleId attention = tree.add_module(layer, cross ? "EncDecAttention" : "SelfAttention", "T5Attention");
  const Count inner = m.heads * m.head_size();
  for (const char* name : {"q", "k", "v"}) add_linear(tree, attention, name, m.dim, inner, false);
  add_linear(tree, attention, "o", inner, m.dim, false);
  if (owns_bias) add_embedding(tree, attention, "relative_attention_bias", m.relative_buckets, m.heads);
  add_norm(tree, layer, "layer_norm", "T5LayerNorm", m.dim, false);
}

void add_feed_forward(ModuleTree& tree, ModuleId list, int number, const ModelSettings& m) {
  const ModuleId layer = tree.add_module(list, std::to_string(number), "T5LayerFF");
  tree.modules[layer].is_sublayer_start = true;
  const ModuleId dense = tree.add_module(layer, "DenseReluDense", m.gated ? "T5DenseGatedActDense" : "T5DenseActDense");
  add_linear(tree, dense, m.gated ? "wi_0" : "wi", m.dim, m.ffn, false);
  if (m.gated) add_linear(tree, dense, "wi_1", m.dim, m.ffn, false);
  add_linear(tree, dense, "wo", m.ffn, m.dim, false);
  add_norm(tree, layer, "layer_norm", "T5LayerNorm", m.dim, false);
}

void add_stack(ModuleTree& tree, ModuleId table, bool decodes, const ModelSettings& m) {
  const ModuleId stack = tree.add_module(0, decodes ? "decoder" : "encoder", "T5Stack");
  add_tied(tree, stack, "embed_tokens", "Embedding", table);
  const ModuleId blocks = tree.add_module(stack, "block", "ModuleList");
  for (std::int64_t l = 0; l < (decodes ? m.decoders() : m.layers); ++l) {
    const ModuleId block = add_block_module(tree, blocks, l, "T5Block");
    const ModuleId list = tree.add_module(block, "layer", "ModuleList");
    add_attention(tree, list, 0, false, l == 0, m);
    if (decodes) add_attention(tree, list, 1, true, false, m);
    add_feed_forward(tree, list, decodes ? 2 : 1, m);
  }
  add_norm(tree, stack, "final_layer_norm", "T5LayerNorm", m.dim, false);
}

}  // namespace

ModuleTree describe_t5(const ModelSettings& m) {
  ModuleTree tree;
  const ModuleId root = tree.add_module(-1, "", "T5ForConditionalGeneration");
  const ModuleId table = add_embedding(tree, root, "shared", m.vocab, m.dim);
  add_stack(tree, table, false, m);
  add_stack(tree, table, true, m);
  if (m.tied)
    add_tied(tree, root, "lm_head", "Linear", table);
  else
    add_linear(tree, root, "lm_head", m.dim, m.vocab, false);
  return tree;
}

}  // namespace harness
