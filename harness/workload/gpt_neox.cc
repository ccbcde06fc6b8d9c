// GPT-NeoX: layer norms and biases, rotary positions on a part of each head, attention and feed-forward side by side
// (or one after the other). Module names as in Hugging Face, children in order of execution.
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
      : Module("GPTNeoXAttention"),
        tables_(tables),
        pattern_{m.dim / m.heads, 3, 2},  // of each head's q, k, v the first two turn
        options_{m.heads, m.heads, true, 1.0 / std::sqrt(static_cast<double>(m.dim / m.heads))},
        qkv_(add_child<Linear>("query_key_value", m.dim, 3 * m.dim, true)),
        dense_(add_child<Linear>("dense", m.dim, m.dim, true)) {}

 protected:
  Tensors forward(Tensors inputs) override {
    inputs = qkv_(std::move(inputs));
    at::Tensor qkv = ops::rope(inputs[0], tables_.cos, tables_.sin, pattern_);
    inputs[0] = ops::attention_packed(qkv, options_);
    return dense_(std::move(inputs));
  }

 private:
  RotaryTables tables_;
  ops::RopePattern pattern_;
  ops::AttentionOptions options_;
  fsdp::Module &qkv_, &dense_;
};

class Mlp final : public fsdp::Module {
 public:
  explicit Mlp(const ModelSettings& m)
      : Module("GPTNeoXMLP"),
        up_(add_child<Linear>("dense_h_to_4h", m.dim, m.ffn, true)),
        down_(add_child<Linear>("dense_4h_to_h", m.ffn, m.dim, true)) {}

 protected:
  Tensors forward(Tensors inputs) override {
    inputs = up_(std::move(inputs));
    inputs[0] = ops::gelu(inputs[0]);
    return down_(std::move(inputs));
  }

 private:
  fsdp::Module &up_, &down_;
};

class Layer final : public fsdp::Module {
 public:
  Layer(const ModelSettings& m, const RotaryTables& tables)
      : Module("GPTNeoXLayer"),
        parallel_(m.parallel_residual),
        norm1_(add_child<LayerNorm>("input_layernorm", m.dim, m.norm_eps).mark_sublayer_start()),
        attention_(add_child<Attention>("attention", m, tables)),
        norm2_(add_child<LayerNorm>("post_attention_layernorm", m.dim, m.norm_eps).mark_sublayer_start()),
        mlp_(add_child<Mlp>("mlp", m)) {}

 protected:
  Tensors forward(Tensors inputs) override {
    Tensors x = ops::fork(inputs[0], parallel_ ? 3 : 2);
    inputs.clear();
    at::Tensor h = at::add(x[0], attention_(norm1_(std::move(x[1]))));
    if (parallel_) {
      inputs.push_back(at::add(h, mlp_(norm2_(std::move(x[2])))));
      return inputs;
    }
    x = ops::fork(h, 2);
    h.reset();
    inputs.push_back(at::add(x[0], mlp_(norm2_(std::move(x[1])))));
    return inputs;
  }

 private:
  bool parallel_;
  fsdp::Module &norm1_, &attention_, &norm2_, &mlp_;
};

}  // namespace

std::unique_ptr<fsdp::Module> build_gpt_neox(const ModelSettings& m, bool meta) {
  const auto rotary = static_cast<std::int64_t>(static_cast<double>(m.head_size()) * m.rotary_pct) / 2 * 2;
  const RotaryTables tables = make_rotary_tables(m.seq, rotary, m.rope_theta, m.buffer_dtype, meta);
  return build_causal(gpt_neox_names(), m, meta, [&](ModuleList& blocks) {
    for (std::int64_t l = 0; l < m.layers; ++l) blocks.append<Layer>(m, tables);
  });
}

}  // namespace harness
