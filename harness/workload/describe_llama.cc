// Llama and its forms: Mistral is Llama, Qwen2 has biases on q, k and v, Qwen3 norms on each head of q and k.
#include "harness/workload/describe.h"

namespace harness {

using fsdp::Count;
using fsdp::ModuleId;
using fsdp::ModuleTree;

std::string llama_prefix(const ModelSettings& m) {
  if (m.family == "mistral") return "Mistral";
  if (m.family == "qwen2") return "Qwen2";
  if (m.family == "qwen3") return "Qwen3";
  return "Llama";
}

CausalNames llama_names(const ModelSettings& m) {
  const std::string prefix = llama_prefix(m);
  return {prefix + "ForCausalLM", "model",  prefix + "Model", "embed_tokens", "", "layers", "norm",
          prefix + "RMSNorm",     "lm_head"};
}

namespace {

void add_attention(ModuleTree& tree, ModuleId layer, const ModelSettings& m, const std::string& prefix) {
  const ModuleId attention = tree.add_module(layer, "self_attn", prefix + "Attention");
  const Count q_dim = m.heads * m.head_size(), kv_dim = m.kv_heads * m.head_size();
  const bool bias = m.family == "qwen2";
  add_linear(tree, attention, "q_proj", m.dim, q_dim, bias);
  add_linear(tree, attention, "k_proj", m.dim, kv_dim, bias);
  add_linear(tree, attention, "v_proj", m.dim, kv_dim, bias);
  add_linear(tree, attention, "o_proj", q_dim, m.dim, false);
  if (m.family != "qwen3") return;
  add_norm(tree, attention, "q_norm", prefix + "RMSNorm", m.head_size(), false);
  add_norm(tree, attention, "k_norm", prefix + "RMSNorm", m.head_size(), false);
}

// Children in order of execution: a sublayer is a norm and what follows it.
void add_decoder_layer(ModuleTree& tree, ModuleId layers, std::int64_t number, const ModelSettings& m) {
  const std::string prefix = llama_prefix(m);
  const ModuleId layer = add_block_module(tree, layers, number, prefix + "DecoderLayer");
  const ModuleId attention_norm = add_norm(tree, layer, "input_layernorm", prefix + "RMSNorm", m.dim, false);
  tree.modules[attention_norm].is_sublayer_start = true;
  add_attention(tree, layer, m, prefix);

  const ModuleId mlp_norm = add_norm(tree, layer, "post_attention_layernorm", prefix + "RMSNorm", m.dim, false);
  tree.modules[mlp_norm].is_sublayer_start = true;
  const ModuleId mlp = tree.add_module(layer, "mlp", prefix + "MLP");
  add_linear(tree, mlp, "gate_proj", m.dim, m.ffn, false);
  add_linear(tree, mlp, "up_proj", m.dim, m.ffn, false);
  add_linear(tree, mlp, "down_proj", m.ffn, m.dim, false);
}

}  // namespace

ModuleTree describe_llama(const ModelSettings& m) { return describe_causal(llama_names(m), m, add_decoder_layer); }

}  // namespace harness
