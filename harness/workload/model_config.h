// A Hugging Face config.json -> ModelSettings.
#pragma once
#include <string>
#include <vector>

#include "harness/workload/model_settings.h"

namespace harness {

// "LlamaForCausalLM", ...: what `architectures` may name.
std::vector<std::string> config_architectures();
// `text`: the content of the file at `path`, which errors name beside the key. Throws fsdp::ConfigError: not JSON, an
// architecture that is not there (with those that are), a key that is missing or has another type, a value that the
// models here do not have.
ModelSettings model_from_config(const std::string& text, const std::string& path);

}  // namespace harness
