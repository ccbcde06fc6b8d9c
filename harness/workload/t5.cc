// T5: a relative bias that the first block of a stack makes and all of its blocks add to their scores, no scale of the
// scores, norms without mean, and a decoder that attends to what the encoder gave. Both read the same ids; the
// decoder's are the targets one step behind, as in teacher forcing.
#include <cmath>

#include "fsdp/module/torch.h"
#include "harness/workload/layers.h"
#include "harness/workload/models.h"

namespace harness {
namespace {

using fsdp::Tensors;
namespace ops = fsdp::ops;

// Takes a tensor [batch, steps, ...] for its steps alone.
class RelativeBias final : public fsdp::Module {
 public:
  RelativeBias(const ModelSettings& m, bool both_ways) : Module("Embedding"), span_(m.relative_span), both_(both_ways) {
    add_parameter("weight", {m.relative_buckets, m.heads}, fsdp::InitRule::kUniform);
  }

 protected:
  Tensors forward(Tensors inputs) override {
    const std::int64_t steps = inputs[0].size(1);
    inputs[0] = ops::relative_bias(parameters()[0].second->read(), {steps, steps, span_, both_});
    return inputs;
  }

 private:
  std::int64_t span_;
  bool both_;
};

// Self-attention: {x, bias} -> {y}; where the bias is made: {x} -> {y, bias}. Cross-attention: {x, encoded} -> {y}.
class Attention final : public fsdp::Module {
 public:
  Attention(const ModelSettings& m, bool decodes, bool cross, bool owns_bias)
      : Module("T5Attention"),
        cross_(cross),
        options_{m.heads, m.heads, decodes && !cross, 1.0},
        q_(add_child<Linear>("q", m.dim, m.heads * m.head_size(), false)),
        k_(add_child<Linear>("k", m.dim, m.heads * m.head_size(), false)),
        v_(add_child<Linear>("v", m.dim, m.heads * m.head_size(), false)),
        o_(add_child<Linear>("o", m.heads * m.head_size(), m.dim, false)),
        bias_(owns_bias ? &add_child<RelativeBias>("relative_attention_bias", m, !decodes) : nullptr) {}

 protected:
  Tensors forward(Tensors inputs) override {
    Tensors bias;
    if (bias_ != nullptr)
      bias = ops::fork((*bias_)(inputs[0].detach()), 2);
    else if (!cross_)
      bias.push_back(std::move(inputs[1]));
    Tensors x = ops::fork(cross_ ? inputs[1] : inputs[0], cross_ ? 2 : 3);
    if (cross_) x.push_back(std::move(inputs[0]));
    inputs.clear();
    at::Tensor q = q_(std::move(x[2])), k = k_(std::move(x[0])), v = v_(std::move(x[1]));
    inputs.push_back(o_(ops::attention(q, k, v, options_, cross_ ? at::Tensor() : bias[0])));
    if (bias_ != nullptr) inputs.push_back(std::move(bias[1]));
    return inputs;
  }

 private:
  bool cross_;
  ops::AttentionOptions options_;
  fsdp::Module &q_, &k_, &v_, &o_;
  RelativeBias* bias_;
};

// x + f(norm(x)), f with the further inputs and outputs of the attention.
class AttentionLayer final : public fsdp::Module {
 public:
  AttentionLayer(const ModelSettings& m, bool decodes, bool cross, bool owns_bias)
      : Module(cross ? "T5LayerCrossAttention" : "T5LayerSelfAttention"),
        attention_(add_child<Attention>(cross ? "EncDecAttention" : "SelfAttention", m, decodes, cross, owns_bias)),
        norm_(add_child<RmsNorm>("layer_norm", "T5LayerNorm", m.dim, m.norm_eps)) {
    mark_sublayer_start();
  }

 protected:
  Tensors forward(Tensors inputs) override {
    Tensors x = ops::fork(inputs[0], 2);
    inputs[0] = norm_(std::move(x[1]));
    inputs = attention_(std::move(inputs));
    inputs[0] = at::add(x[0], inputs[0]);
    return inputs;
  }

 private:
  fsdp::Module &attention_, &norm_;
};

class Dense final : public fsdp::Module {
 public:
  explicit Dense(const ModelSettings& m)
      : Module(m.gated ? "T5DenseGatedActDense" : "T5DenseActDense"),
        gate_(add_child<Linear>(m.gated ? "wi_0" : "wi", m.dim, m.ffn, false)),
        up_(m.gated ? &add_child<Linear>("wi_1", m.dim, m.ffn, false) : nullptr),
        down_(add_child<Linear>("wo", m.ffn, m.dim, false)) {}

 protected:
  Tensors forward(Tensors inputs) override {
    if (up_ == nullptr) {
      inputs[0] = ops::relu(gate_(std::move(inputs[0])));
      return down_(std::move(inputs));
    }
    Tensors x = ops::fork(inputs[0], 2);
    inputs.clear();
    at::Tensor gate = ops::gelu(gate_(std::move(x[0])), true);
    at::Tensor up = (*up_)(std::move(x[1]));
    inputs.push_back(down_(at::mul(gate, up)));
    return inputs;
  }

 private:
  fsdp::Module& gate_;
  fsdp::Module* up_;
  fsdp::Module& down_;
};

class FeedForward final : public fsdp::Module {
 public:
  explicit FeedForward(const ModelSettings& m)
      : Module("T5LayerFF"),
        dense_(add_child<Dense>("DenseReluDense", m)),
        norm_(add_child<RmsNorm>("layer_norm", "T5LayerNorm", m.dim, m.norm_eps)) {
    mark_sublayer_start();
  }

 protected:
  Tensors forward(Tensors inputs) override {
    inputs[0] = residual(std::move(inputs[0]), norm_, dense_);
    return inputs;
  }

 private:
  fsdp::Module &dense_, &norm_;
};

class LayerList final : public fsdp::Module {
 public:
  LayerList(const ModelSettings& m, bool decodes, bool first)
      : Module("ModuleList"), self_(add_child<AttentionLayer>("0", m, decodes, false, first)) {
    if (decodes) cross_ = &add_child<AttentionLayer>("1", m, decodes, true, false);
    dense_ = &add_child<FeedForward>(decodes ? "2" : "1", m);
  }

 protected:
  // {x, [encoded], [bias]} -> {x, [bias]}
  Tensors forward(Tensors inputs) override {
    at::Tensor encoded;
    if (cross_ != nullptr) {
      encoded = std::move(inputs[1]);
      inputs.erase(inputs.begin() + 1);
    }
    inputs = self_(std::move(inputs));
    if (cross_ != nullptr) {
      Tensors both;
      both.push_back(std::move(inputs[0]));
      both.push_back(std::move(encoded));
      inputs[0] = std::move((*cross_)(std::move(both))[0]);
    }
    inputs[0] = (*dense_)(std::move(inputs[0]));
    return inputs;
  }

 private:
  fsdp::Module& self_;
  fsdp::Module *cross_ = nullptr, *dense_ = nullptr;
};

class Block final : public fsdp::Module {
 public:
  Block(const ModelSettings& m, bool decodes, bool first)
      : Module("T5Block"), layers_(add_child<LayerList>("layer", m, decodes, first)) {}

 protected:
  Tensors forward(Tensors inputs) override { return layers_(std::move(inputs)); }

 private:
  fsdp::Module& layers_;
};

// The last reader of `t` takes it, the others one of two branches.
at::Tensor next_reader(at::Tensor& t, bool last) {
  if (last) return std::move(t);
  Tensors two = ops::fork(t, 2);
  t = std::move(two[1]);
  return std::move(two[0]);
}

class Stack final : public fsdp::Module {
 public:
  Stack(const ModelSettings& m, bool decodes, const std::shared_ptr<fsdp::Parameter>& table)
      : Module("T5Stack"),
        decodes_(decodes),
        table_(add_child<Embedding>("embed_tokens", table)),
        blocks_(add_child<ModuleList>("block")),
        norm_(add_child<RmsNorm>("final_layer_norm", "T5LayerNorm", m.dim, m.norm_eps)) {
    for (std::int64_t l = 0; l < (decodes ? m.decoders() : m.layers); ++l) blocks_.append<Block>(m, decodes, l == 0);
  }

 protected:
  // {ids, [encoded]} -> {x}. Bias and encoder output go from block to block: their gradients are summed on the way.
  Tensors forward(Tensors inputs) override {
    at::Tensor encoded, bias;
    if (decodes_) encoded = std::move(inputs[1]);
    at::Tensor x = table_(std::move(inputs[0]));
    const std::size_t count = blocks_.children().size();
    for (std::size_t i = 0; i < count; ++i) {
      inputs.clear();
      inputs.push_back(std::move(x));
      if (decodes_) inputs.push_back(next_reader(encoded, i + 1 == count));
      if (i > 0) inputs.push_back(next_reader(bias, i + 1 == count));
      inputs = (*blocks_.children()[i].second)(std::move(inputs));
      x = std::move(inputs[0]);
      if (i == 0) bias = std::move(inputs[1]);
    }
    inputs.clear();
    inputs.push_back(norm_(std::move(x)));
    return inputs;
  }

 private:
  bool decodes_;
  fsdp::Module& table_;
  ModuleList& blocks_;
  fsdp::Module& norm_;
};

class T5 final : public fsdp::Module {
 public:
  explicit T5(const ModelSettings& m)
      : Module("T5ForConditionalGeneration"),
        scale_(m.tied ? 1.0 / std::sqrt(static_cast<double>(m.dim)) : 1.0),
        shared_(add_child<Embedding>("shared", m.vocab, m.dim)),
        encoder_(add_child<Stack>("encoder", m, false, shared_.weight())),
        decoder_(add_child<Stack>("decoder", m, true, shared_.weight())),
        head_(m.tied ? add_child<Linear>("lm_head", shared_.weight())
                     : add_child<Linear>("lm_head", m.dim, m.vocab, false)) {}

 protected:
  Tensors forward(Tensors inputs) override {
    inputs.push_back(encoder_(inputs[0]));
    inputs = decoder_(std::move(inputs));
    if (scale_ != 1.0) inputs[0] = at::mul(inputs[0], scale_);
    return head_(std::move(inputs));
  }

 private:
  double scale_;
  Embedding& shared_;  // holds the table; the stacks look it up
  fsdp::Module &encoder_, &decoder_, &head_;
};

}  // namespace

std::unique_ptr<fsdp::Module> build_t5(const ModelSettings& m, bool) {
  auto model = std::make_unique<T5>(m);
  fsdp::name_modules(*model);
  return model;
}

}  // namespace harness
