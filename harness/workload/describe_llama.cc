#include "harness/workload/describe.h"

namespace harness {

using fsdp::Count;
using fsdp::ModuleId;
using fsdp::ModuleTree;

namespace {

// Children in order of execution: a sublayer is a norm and what follows it.
void add_decoder_layer(ModuleTree& tree, ModuleId layers, std::int64_t number, const ModelSettings& m) {
  const Count kv_dim = m.dim / m.heads * m.kv_heads;
  const ModuleId layer = tree.add_module(layers, std::to_string(number), "LlamaDecoderLayer");
  tree.modules[layer].is_block = true;

  const ModuleId attention_norm = add_norm(tree, layer, "input_layernorm", "LlamaRMSNorm", m.dim, false);
  tree.modules[attention_norm].is_sublayer_start = true;
  const ModuleId attention = tree.add_module(layer, "self_attn", "LlamaAttention");
  add_linear(tree, attention, "q_proj", m.dim, m.dim, false);
  add_linear(tree, attention, "k_proj", m.dim, kv_dim, false);
  add_linear(tree, attention, "v_proj", m.dim, kv_dim, false);
  add_linear(tree, attention, "o_proj", m.dim, m.dim, false);

  const ModuleId mlp_norm = add_norm(tree, layer, "post_attention_layernorm", "LlamaRMSNorm", m.dim, false);
  tree.modules[mlp_norm].is_sublayer_start = true;
  const ModuleId mlp = tree.add_module(layer, "mlp", "LlamaMLP");
  add_linear(tree, mlp, "gate_proj", m.dim, m.ffn, false);
  add_linear(tree, mlp, "up_proj", m.dim, m.ffn, false);
  add_linear(tree, mlp, "down_proj", m.ffn, m.dim, false);
}

}  // namespace

ModuleTree describe_llama(const ModelSettings& m) {
  ModuleTree tree;
  const ModuleId root = tree.add_module(-1, "", "LlamaForCausalLM");
  const ModuleId model = tree.add_module(root, "model", "LlamaModel");
  const ModuleId table = add_embedding(tree, model, "embed_tokens", m.vocab, m.dim);
  const ModuleId layers = tree.add_module(model, "layers", "ModuleList");
  for (std::int64_t l = 0; l < m.layers; ++l) add_decoder_layer(tree, layers, l, m);
  add_norm(tree, model, "norm", "LlamaRMSNorm", m.dim, false);
  if (m.tied) {
    const ModuleId head = tree.add_module(root, "lm_head", "Linear");
    tree.share_parameter(head, "weight", tree.modules[table].parameters.front());
  } else {
    add_linear(tree, root, "lm_head", m.dim, m.vocab, false);
  }
  return tree;
}

}  // namespace harness
