#include "harness/workload/model_presets.h"

namespace harness {
namespace {

ModelSettings llama(std::int64_t layers, std::int64_t dim, std::int64_t heads, std::int64_t kv_heads, std::int64_t ffn,
                    std::int64_t vocab, std::int64_t seq, double rope_theta, bool tied = false) {
  ModelSettings m;
  m.layers = layers, m.dim = dim, m.heads = heads, m.kv_heads = kv_heads, m.ffn = ffn, m.vocab = vocab;
  m.seq = seq, m.rope_theta = rope_theta, m.tied = tied;
  return m;
}

ModelSettings mistral(const ModelSettings& dims) {
  ModelSettings m = dims;
  m.family = "mistral";
  m.ignored = "sliding_window";
  return m;
}

ModelSettings qwen2(const ModelSettings& dims) {
  ModelSettings m = dims;
  m.family = "qwen2";
  m.norm_eps = 1e-6;
  return m;
}

ModelSettings qwen3(const ModelSettings& dims, std::int64_t head_dim = 128) {
  ModelSettings m = qwen2(dims);
  m.family = "qwen3";
  m.head_dim = head_dim;
  return m;
}

ModelSettings gpt_neox(std::int64_t layers, std::int64_t dim, std::int64_t heads, std::int64_t vocab,
                       std::int64_t seq) {
  ModelSettings m = llama(layers, dim, heads, heads, 4 * dim, vocab, seq, 10000.0);
  m.family = "gpt-neox";
  return m;
}

ModelSettings gpt2(std::int64_t layers, std::int64_t dim, std::int64_t heads) {
  ModelSettings m = llama(layers, dim, heads, heads, 4 * dim, 50257, 1024, 10000.0, true);
  m.family = "gpt2";
  m.positions = 1024;
  return m;
}

ModelSettings t5(std::int64_t layers, std::int64_t dim, std::int64_t heads, std::int64_t head_dim, std::int64_t ffn) {
  ModelSettings m = llama(layers, dim, heads, heads, ffn, 32128, 512, 10000.0, true);
  m.family = "t5";
  m.head_dim = head_dim;
  m.norm_eps = 1e-6;
  return m;
}

ModelSettings t5_v1_1(std::int64_t layers, std::int64_t dim, std::int64_t heads, std::int64_t ffn) {
  ModelSettings m = t5(layers, dim, heads, 64, ffn);
  m.tied = false, m.gated = true;
  return m;
}

ModelSettings small_t5() {
  ModelSettings m = t5(4, 128, 4, 32, 352);
  m.vocab = 512, m.seq = 64;
  return m;
}

ModelSettings classes_of(const char* family, ModelSettings m, std::int64_t classes) {
  m.family = family;
  m.classes = classes;
  return m;
}

}  // namespace

// The default sequence length is the one of pre-training. The table of gpt-neox-20b is padded from the tokenizer's
// 50,257 rows to 50,432, which gives the published parameter count; Pythia's tables are padded likewise. The
// classifier is this project's own.
const std::vector<std::pair<std::string, ModelSettings>>& model_preset_table() {
  static const std::vector<std::pair<std::string, ModelSettings>> table = {
      {"llama", ModelSettings{}},
      {"mistral", mistral(llama(4, 128, 4, 2, 352, 512, 64, 1e4))},
      {"qwen2", qwen2(llama(4, 128, 4, 2, 352, 512, 64, 1e4))},
      {"qwen3", qwen3(llama(4, 128, 4, 2, 352, 512, 64, 1e4), 32)},
      {"gpt-neox", gpt_neox(4, 128, 4, 512, 64)},
      {"t5", small_t5()},
      {"embedding-classifier", classes_of("embedding-classifier", llama(4, 256, 4, 4, 1024, 1000000, 64, 1e4), 1000)},
      {"mlp", classes_of("mlp", llama(4, 128, 1, 1, 512, 1, 64, 1e4), 512)},
      {"llama-2-7b", llama(32, 4096, 32, 32, 11008, 32000, 4096, 1e4)},
      {"llama-2-13b", llama(40, 5120, 40, 40, 13824, 32000, 4096, 1e4)},
      {"llama-2-70b", llama(80, 8192, 64, 8, 28672, 32000, 4096, 1e4)},
      {"llama-3-8b", llama(32, 4096, 32, 8, 14336, 128256, 8192, 5e5)},
      {"llama-3-70b", llama(80, 8192, 64, 8, 28672, 128256, 8192, 5e5)},
      {"llama-3.1-405b", llama(126, 16384, 128, 8, 53248, 128256, 8192, 5e5)},
      {"llama-3.2-1b", llama(16, 2048, 32, 8, 8192, 128256, 8192, 5e5, true)},
      {"mistral-7b", mistral(llama(32, 4096, 32, 8, 14336, 32000, 8192, 1e4))},
      {"qwen2.5-0.5b", qwen2(llama(24, 896, 14, 2, 4864, 151936, 4096, 1e6, true))},
      {"qwen2.5-1.5b", qwen2(llama(28, 1536, 12, 2, 8960, 151936, 4096, 1e6, true))},
      {"qwen2.5-7b", qwen2(llama(28, 3584, 28, 4, 18944, 152064, 4096, 1e6))},
      {"qwen2.5-72b", qwen2(llama(80, 8192, 64, 8, 29568, 152064, 4096, 1e6))},
      {"qwen3-0.6b", qwen3(llama(28, 1024, 16, 8, 3072, 151936, 4096, 1e6, true))},
      {"qwen3-8b", qwen3(llama(36, 4096, 32, 8, 12288, 151936, 4096, 1e6))},
      {"qwen3-14b", qwen3(llama(40, 5120, 40, 8, 17408, 151936, 4096, 1e6))},
      {"gpt-neox-20b", gpt_neox(44, 6144, 64, 50432, 2048)},
      {"pythia-70m", gpt_neox(6, 512, 8, 50304, 2048)},
      {"pythia-160m", gpt_neox(12, 768, 12, 50304, 2048)},
      {"pythia-410m", gpt_neox(24, 1024, 16, 50304, 2048)},
      {"pythia-1b", gpt_neox(16, 2048, 8, 50304, 2048)},
      {"pythia-1.4b", gpt_neox(24, 2048, 16, 50304, 2048)},
      {"pythia-2.8b", gpt_neox(32, 2560, 32, 50304, 2048)},
      {"pythia-6.9b", gpt_neox(32, 4096, 32, 50432, 2048)},
      {"pythia-12b", gpt_neox(36, 5120, 40, 50688, 2048)},
      {"gpt2", gpt2(12, 768, 12)},
      {"gpt2-medium", gpt2(24, 1024, 16)},
      {"gpt2-large", gpt2(36, 1280, 20)},
      {"gpt2-xl", gpt2(48, 1600, 25)},
      {"t5-small", t5(6, 512, 8, 64, 2048)},
      {"t5-base", t5(12, 768, 12, 64, 3072)},
      {"t5-large", t5(24, 1024, 16, 64, 4096)},
      {"t5-3b", t5(24, 1024, 32, 128, 16384)},
      {"t5-11b", t5(24, 1024, 128, 128, 65536)},
      {"t5-v1.1-small", t5_v1_1(8, 512, 6, 1024)},
      {"t5-v1.1-base", t5_v1_1(12, 768, 12, 2048)},
      {"t5-v1.1-large", t5_v1_1(24, 1024, 16, 2816)},
      {"t5-v1.1-xl", t5_v1_1(24, 2048, 32, 5120)},
      {"t5-v1.1-xxl", t5_v1_1(24, 4096, 64, 10240)},
  };
  return table;
}

}  // namespace harness
