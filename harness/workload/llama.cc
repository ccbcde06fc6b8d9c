// Llama: grouped queries, rotary positions, gated feed-forward. Module names as in Hugging Face, children in order of
// execution; arithmetic as in tests/data/goldens/README.md.
#include <cmath>

#include "fsdp/module/torch.h"
#include "harness/workload/layers.h"
#include "harness/workload/models.h"

namespace harness {
namespace {

using fsdp::Tensors;
namespace ops = fsdp::ops;

class Attention final : public fsdp::Module {
 public:
  Attention(const ModelSettings& m, const RotaryTables& tables)
      : Module("LlamaAttention"),
        tables_(tables),
        pattern_{m.dim / m.heads, 1, 1},
        options_{m.heads, m.kv_heads, true, 1.0 / std::sqrt(static_cast<double>(m.dim / m.heads))},
        q_(add_child<Linear>("q_proj", m.dim, m.dim, false)),
        k_(add_child<Linear>("k_proj", m.dim, m.kv_heads * pattern_.head_dim, false)),
        v_(add_child<Linear>("v_proj", m.dim, m.kv_heads * pattern_.head_dim, false)),
        o_(add_child<Linear>("o_proj", m.dim, m.dim, false)) {}

 protected:
  Tensors forward(Tensors inputs) override {
    Tensors x = ops::fork(inputs[0], 3);
    inputs.clear();
    at::Tensor q = ops::rope(q_(std::move(x[0])), tables_.cos, tables_.sin, pattern_);
    at::Tensor k = ops::rope(k_(std::move(x[1])), tables_.cos, tables_.sin, pattern_);
    at::Tensor v = v_(std::move(x[2]));
    inputs.push_back(o_(ops::attention(q, k, v, options_)));
    return inputs;
  }

 private:
  RotaryTables tables_;
  ops::RopePattern pattern_;
  ops::AttentionOptions options_;
  fsdp::Module &q_, &k_, &v_, &o_;
};

class Mlp final : public fsdp::Module {
 public:
  explicit Mlp(const ModelSettings& m)
      : Module("LlamaMLP"),
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
      : Module("LlamaDecoderLayer"),
        norm1_(add_child<RmsNorm>("input_layernorm", "LlamaRMSNorm", m.dim, m.norm_eps).mark_sublayer_start()),
        attention_(add_child<Attention>("self_attn", m, tables)),
        norm2_(add_child<RmsNorm>("post_attention_layernorm", "LlamaRMSNorm", m.dim, m.norm_eps).mark_sublayer_start()),
        mlp_(add_child<Mlp>("mlp", m)) {}

 protected:
  Tensors forward(Tensors inputs) override {
    Tensors x = ops::fork(inputs[0], 2);
    inputs.clear();
    at::Tensor h = at::add(x[0], attention_(norm1_(std::move(x[1]))));
    x = ops::fork(h, 2);
    h.reset();
    inputs.push_back(at::add(x[0], mlp_(norm2_(std::move(x[1])))));
    return inputs;
  }

 private:
  fsdp::Module &norm1_, &attention_, &norm2_, &mlp_;
};

class LlamaModel final : public fsdp::Module {
 public:
  LlamaModel(const ModelSettings& m, const RotaryTables& tables)
      : Module("LlamaModel"),
        table_(add_child<Embedding>("embed_tokens", m.vocab, m.dim)),
        layers_(add_child<ModuleList>("layers")),
        norm_(add_child<RmsNorm>("norm", "LlamaRMSNorm", m.dim, m.norm_eps)) {
    for (std::int64_t l = 0; l < m.layers; ++l) layers_.append<DecoderLayer>(m, tables);
  }
  std::shared_ptr<fsdp::Parameter> table() const { return table_.weight(); }

 protected:
  Tensors forward(Tensors inputs) override { return norm_(layers_(table_(std::move(inputs)))); }

 private:
  Embedding& table_;
  ModuleList& layers_;
  fsdp::Module& norm_;
};

class LlamaForCausalLM final : public fsdp::Module {
 public:
  LlamaForCausalLM(const ModelSettings& m, const RotaryTables& tables)
      : Module("LlamaForCausalLM"),
        model_(add_child<LlamaModel>("model", m, tables)),
        head_(m.tied ? add_child<Linear>("lm_head", model_.table())
                     : add_child<Linear>("lm_head", m.dim, m.vocab, false)) {}

 protected:
  Tensors forward(Tensors inputs) override { return head_(model_(std::move(inputs))); }

 private:
  LlamaModel& model_;
  fsdp::Module& head_;
};

}  // namespace

std::unique_ptr<fsdp::Module> build_llama(const ModelSettings& m, bool meta) {
  auto model = std::make_unique<LlamaForCausalLM>(m, make_rotary_tables(m.seq, m.dim / m.heads, m.rope_theta, meta));
  fsdp::name_modules(*model);
  return model;
}

}  // namespace harness
