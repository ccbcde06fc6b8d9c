// Llama and its forms: grouped queries, rotary positions, gated feed-forward. Module names as in Hugging Face, children
// in order of execution; arithmetic as in tests/data/goldens/README.md.
#include <cmath>

#include "fsdp/module/torch.h"
#include "harness/workload/causal.h"
#include "harness/workload/models.h"

namespace harness {
namespace {

using fsdp::Tensors;
namespace ops = fsdp::ops;

class Attention final : public fsdp::Module {
 public:
  Attention(const ModelSettings& m, const RotaryTables& tables)
      : Module(llama_prefix(m) + "Attention"),
        tables_(tables),
        pattern_{m.head_size(), 1, 1},
        options_{m.heads, m.kv_heads, true, 1.0 / std::sqrt(static_cast<double>(m.head_size()))},
        q_(add_child<Linear>("q_proj", m.dim, m.heads * m.head_size(), m.family == "qwen2")),
        k_(add_child<Linear>("k_proj", m.dim, m.kv_heads * m.head_size(), m.family == "qwen2")),
        v_(add_child<Linear>("v_proj", m.dim, m.kv_heads * m.head_size(), m.family == "qwen2")),
        o_(add_child<Linear>("o_proj", m.heads * m.head_size(), m.dim, false)) {
    if (m.family != "qwen3") return;
    for (auto [name, norm] : {std::pair{"q_norm", &q_norm_}, std::pair{"k_norm", &k_norm_}})
      *norm = &add_child<RmsNorm>(name, llama_prefix(m) + "RMSNorm", m.head_size(), m.norm_eps);
  }

 protected:
  Tensors forward(Tensors inputs) override {
    Tensors x = ops::fork(inputs[0], 3);
    inputs.clear();
    at::Tensor q = turned(q_(std::move(x[0])), q_norm_);
    at::Tensor k = turned(k_(std::move(x[1])), k_norm_);
    at::Tensor v = v_(std::move(x[2]));
    inputs.push_back(o_(ops::attention(q, k, v, options_)));
    return inputs;
  }

 private:
  // Norms each head where there are norms.
  at::Tensor turned(at::Tensor x, fsdp::Module* norm) const {
    if (norm != nullptr) {
      const auto sizes = x.sizes().vec();
      x = (*norm)(x.view({sizes[0], sizes[1], sizes[2] / pattern_.head_dim, pattern_.head_dim})).view(sizes);
    }
    return ops::rope(x, tables_.cos, tables_.sin, pattern_);
  }

  RotaryTables tables_;
  ops::RopePattern pattern_;
  ops::AttentionOptions options_;
  fsdp::Module &q_, &k_, &v_, &o_;
  fsdp::Module *q_norm_ = nullptr, *k_norm_ = nullptr;
};

class Mlp final : public fsdp::Module {
 public:
  explicit Mlp(const ModelSettings& m)
      : Module(llama_prefix(m) + "MLP"),
        gate_(add_child<Linear>("gate_proj", m.dim, m.ffn, false)),
        up_(add_child<Linear>("up_proj", m.dim, m.ffn, false)),
        down_(add_child<Linear>("down_proj", m.ffn, m.dim, false)) {}

 protected:
  Tensors forward(Tensors inputs) override {
    Tensors x = ops::fork(inputs[0], 2);
    inputs.clear();
    at::Tensor gate = gate_(std::move(x[0]));
    at::Tensor up = up_(std::move(x[1]));
    inputs.push_back(down_(ops::swiglu(gate, up)));
    return inputs;
  }

 private:
  fsdp::Module &gate_, &up_, &down_;
};

class DecoderLayer final : public fsdp::Module {
 public:
  DecoderLayer(const ModelSettings& m, const RotaryTables& tables)
      : Module(llama_prefix(m) + "DecoderLayer"),
        norm1_(add_norm("input_layernorm", m)),
        attention_(add_child<Attention>("self_attn", m, tables)),
        norm2_(add_norm("post_attention_layernorm", m)),
        mlp_(add_child<Mlp>("mlp", m)) {}

 protected:
  Tensors forward(Tensors inputs) override {
    at::Tensor h = residual(std::move(inputs[0]), norm1_, attention_);
    inputs[0] = residual(std::move(h), norm2_, mlp_);
    return inputs;
  }

 private:
  fsdp::Module& add_norm(const char* name, const ModelSettings& m) {
    return add_child<RmsNorm>(name, llama_prefix(m) + "RMSNorm", m.dim, m.norm_eps).mark_sublayer_start();
  }
  fsdp::Module &norm1_, &attention_, &norm2_, &mlp_;
};

}  // namespace

std::unique_ptr<fsdp::Module> build_llama(const ModelSettings& m, bool meta) {
  const RotaryTables tables = make_rotary_tables(m.seq, m.head_size(), m.rope_theta, m.buffer_dtype, meta);
  return build_causal(llama_names(m), m, meta, [&](ModuleList& blocks) {
    for (std::int64_t l = 0; l < m.layers; ++l) blocks.append<DecoderLayer>(m, tables);
  });
}

}  // namespace harness
