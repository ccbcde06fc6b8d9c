// GPT-2: learned positions, layer norms and biases, weights as [in, out], q, k and v from one product. The classifier
// reads one large table, attends both ways and scores the mean over the steps.
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
  Attention(const ModelSettings& m, bool causal)
      : Module("GPT2Attention"),
        options_{m.heads, m.heads, causal, 1.0 / std::sqrt(static_cast<double>(m.head_size()))},
        qkv_(add_child<Conv1d>("c_attn", m.dim, 3 * m.dim)),
        out_(add_child<Conv1d>("c_proj", m.dim, m.dim)) {}

 protected:
  Tensors forward(Tensors inputs) override {
    inputs = qkv_(std::move(inputs));
    inputs[0] = ops::attention_packed(inputs[0], options_, false);
    return out_(std::move(inputs));
  }

 private:
  ops::AttentionOptions options_;
  fsdp::Module &qkv_, &out_;
};

class Mlp final : public fsdp::Module {
 public:
  explicit Mlp(const ModelSettings& m)
      : Module("GPT2MLP"),
        up_(add_child<Conv1d>("c_fc", m.dim, m.ffn)),
        down_(add_child<Conv1d>("c_proj", m.ffn, m.dim)) {}

 protected:
  Tensors forward(Tensors inputs) override {
    inputs = up_(std::move(inputs));
    inputs[0] = ops::gelu(inputs[0], true);
    return down_(std::move(inputs));
  }

 private:
  fsdp::Module &up_, &down_;
};

class Block final : public fsdp::Module {
 public:
  Block(const ModelSettings& m, bool causal)
      : Module("GPT2Block"),
        norm1_(add_child<LayerNorm>("ln_1", m.dim, m.norm_eps).mark_sublayer_start()),
        attention_(add_child<Attention>("attn", m, causal)),
        norm2_(add_child<LayerNorm>("ln_2", m.dim, m.norm_eps).mark_sublayer_start()),
        mlp_(add_child<Mlp>("mlp", m)) {}

 protected:
  Tensors forward(Tensors inputs) override {
    at::Tensor h = residual(std::move(inputs[0]), norm1_, attention_);
    inputs[0] = residual(std::move(h), norm2_, mlp_);
    return inputs;
  }

 private:
  fsdp::Module &norm1_, &attention_, &norm2_, &mlp_;
};

void add_blocks(ModuleList& blocks, const ModelSettings& m, bool causal) {
  for (std::int64_t l = 0; l < m.layers; ++l) blocks.append<Block>(m, causal);
}

class EmbeddingClassifier final : public fsdp::Module {
 public:
  explicit EmbeddingClassifier(const ModelSettings& m)
      : Module("EmbeddingClassifier"),
        table_(add_child<Embedding>("embedding", m.vocab, m.dim)),
        blocks_(add_child<ModuleList>("h")),
        norm_(add_child<LayerNorm>("ln_f", m.dim, m.norm_eps)),
        head_(add_child<Linear>("score", m.dim, m.classes, true)) {
    add_blocks(blocks_, m, false);
  }

 protected:
  Tensors forward(Tensors inputs) override {
    inputs = norm_(blocks_(table_(std::move(inputs))));
    inputs[0] = ops::mean_steps(inputs[0]);
    return head_(std::move(inputs));
  }

 private:
  fsdp::Module& table_;
  ModuleList& blocks_;
  fsdp::Module &norm_, &head_;
};

}  // namespace

std::unique_ptr<fsdp::Module> build_gpt2(const ModelSettings& m, bool meta) {
  return build_causal(gpt2_names(), m, meta, [&](ModuleList& blocks) { add_blocks(blocks, m, true); });
}

std::unique_ptr<fsdp::Module> build_classifier(const ModelSettings& m, bool) {
  auto model = std::make_unique<EmbeddingClassifier>(m);
  fsdp::name_modules(*model);
  return model;
}

}  // namespace harness
