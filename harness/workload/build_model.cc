#include "fsdp/core/errors.h"
#include "harness/workload/describe.h"
#include "harness/workload/graph_module.h"
#include "harness/workload/models.h"

namespace harness {
namespace {

using Build = std::unique_ptr<fsdp::Module> (*)(const ModelSettings& m, bool meta);
// By the description that goes with it.
constexpr std::pair<decltype(Family::describe), Build> kBuilders[] = {
    {describe_llama, build_llama}, {describe_gpt_neox, build_gpt_neox},     {describe_gpt2, build_gpt2},
    {describe_t5, build_t5},       {describe_classifier, build_classifier}, {describe_mlp, build_mlp},
    {describe_graph, build_graph},
};

std::unique_ptr<fsdp::Module> build_family(const ModelSettings& m, bool meta) {
  const auto describe = family_of(m.family).describe;
  for (const auto& [described, build] : kBuilders)
    if (described == describe) return build(m, meta);
  SHARDSCOPE_CHECK(false, "no builder for " + m.family);
}

}  // namespace

std::unique_ptr<fsdp::Module> build_model(const ModelSettings& m, bool meta) {
  check_sequence(m, m.seq);
  auto model = build_family(m, meta);
  if (m.frozen.empty()) return model;
  const fsdp::ModuleTree tree = describe_model(m);
  for (const auto& p : fsdp::parameters_of(*model))
    p->trainable = tree.parameters[static_cast<std::size_t>(p->index)].trainable;
  return model;
}

}  // namespace harness
