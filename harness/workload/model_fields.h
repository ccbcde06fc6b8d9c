// The dimensions of ModelSettings by name: what `set`, a model's text and its checks are made from.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "harness/workload/model_settings.h"

namespace harness {

struct ModelField {
  const char* name;
  std::variant<std::int64_t ModelSettings::*, double ModelSettings::*, bool ModelSettings::*,
               std::string ModelSettings::*>
      member;
  std::int64_t most = 0;  // of a whole number; keeps every count of the model inside 64 bits
};
// In the order in which texts list them.
const std::vector<ModelField>& model_fields();

// Throws ConfigError with what the value may be. REQUIRES: `name` is a field's.
void set_model_field(ModelSettings& m, const std::string& name, const std::string& text);
std::string model_field_text(const ModelSettings& m, const ModelField& field);

// Dimensions against each other. Throws ConfigError.
void check_model(const ModelSettings& m);

}  // namespace harness
