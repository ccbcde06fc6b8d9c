#include "fsdp/core/errors.h"
#include "harness/workload/models.h"

namespace harness {

std::unique_ptr<fsdp::Module> build_model(const ModelSettings& m, bool meta) {
  if (m.family == "llama") return build_llama(m, meta);
  if (m.family == "gpt-neox") return build_gpt_neox(m, meta);
  throw fsdp::ConfigError("[model] family '" + m.family + "' has no tensors to run with; families: llama, gpt-neox");
}

}  // namespace harness
