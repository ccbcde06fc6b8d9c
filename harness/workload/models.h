// The torch models. Torch room.
#pragma once
#include <memory>

#include "fsdp/module/module.h"
#include "harness/workload/model_settings.h"

namespace harness {

// Inputs of batch.h -> logits [rows..., classes]. Named (name_modules), without values; tables for m.seq positions, on
// meta if asked for; frozen parameters marked. Its tree equals describe_model(m). Throws fsdp::ConfigError for a family
// that is not there.
std::unique_ptr<fsdp::Module> build_model(const ModelSettings& m, bool meta);

std::unique_ptr<fsdp::Module> build_llama(const ModelSettings& m, bool meta);
std::unique_ptr<fsdp::Module> build_gpt_neox(const ModelSettings& m, bool meta);
std::unique_ptr<fsdp::Module> build_gpt2(const ModelSettings& m, bool meta);
std::unique_ptr<fsdp::Module> build_t5(const ModelSettings& m, bool meta);
std::unique_ptr<fsdp::Module> build_classifier(const ModelSettings& m, bool meta);
std::unique_ptr<fsdp::Module> build_mlp(const ModelSettings& m, bool meta);

}  // namespace harness
