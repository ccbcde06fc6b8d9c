// Writes, for a list of cases, the snippets of `recommend` and what the plan says of the same units: the input of
// snippet_test.py.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "harness/advise/snippet.h"

namespace {

using harness::Policy;
using nlohmann::json;

json modules_of(const Policy& p) {
  json out = json::array();
  for (const fsdp::ModuleInfo& m : p.tree.modules) {
    json parameters = json::object();
    for (const fsdp::ParameterId id : m.parameters) {
      const fsdp::ParameterInfo& info = p.tree.parameters[static_cast<std::size_t>(id)];
      std::string name = info.name;
      for (const std::string& alias : info.aliases)
        if (alias.rfind(m.path + ".", 0) == 0) name = alias;
      parameters[name.substr(name.rfind('.') + 1)] = {{"id", id}, {"shape", info.shape}};
    }
    out.push_back({{"path", m.path}, {"type", m.type}, {"parameters", parameters}});
  }
  return out;
}

json dump(const std::string& title, const harness::CaseSettings& c) {
  const Policy p = harness::policy_of(c);
  json units = json::array();
  for (const fsdp::UnitSpec& u : p.plan.units) {
    units.push_back({{"names", harness::snippet_detail::module_names(p, u)},
                     {"root", u.is_root},
                     {"reshards", fsdp::reshards_after_forward(u)},
                     {"numel", u.numel}});
  }
  json out = {{"title", title},
              {"units", units},
              {"modules", modules_of(p)},
              {"forward_prefetch", c.forward_prefetch},
              {"fsdp2", harness::fsdp2_snippet(p)},
              {"fsdp1", nullptr}};
  if (!harness::fsdp1_obstacle(p)) out["fsdp1"] = harness::fsdp1_snippet(p);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::vector<std::vector<std::pair<std::string, std::string>>> cases = {
      {{"wrap", "block"}},
      {{"wrap", "root"}},
      {{"wrap", "blocks:2"}},
      {{"wrap", "sublayer"}},
      {{"wrap", "class:Embedding,LlamaDecoderLayer"}, {"forward_prefetch", "2"}, {"backward_prefetch", "pre:2"}},
      {{"wrap", "size:20000"}, {"backward_prefetch", "none"}, {"forward_prefetch", "0"}},
      {{"wrap", "block"}, {"reshard_after_forward", "true"}, {"backward_prefetch", "post"}},
      {{"wrap", "block"}, {"strategy", "shard_grad_op"}},
      {{"wrap", "block"}, {"strategy", "no_shard"}},
      {{"wrap", "block"}, {"strategy", "hybrid_shard:2"}},
      {{"wrap", "block"}, {"param_dtype", "bf16"}, {"reduce_dtype", "fp32"}},
      {{"wrap", "block"}, {"set", "layers=4,tied=true"}},
      {{"wrap", "block"}, {"model", "gpt-neox"}},
      {{"wrap", "block"}, {"checkpoint", "block"}},
      {{"wrap", "class:Linear"}, {"model", "gpt-neox"}},
      {{"wrap", "size:60000"}, {"model", "gpt-neox"}},
      {{"wrap", "sublayer"}, {"model", "gpt2"}},
      {{"wrap", "class:T5Block,Embedding"}, {"model", "t5"}},
  };
  json all = json::array();
  for (const auto& settings : cases) {
    harness::CaseSettings c;
    std::string title;
    for (const auto& [name, value] : settings) {
      harness::apply_setting(c, name, value);
      title += (title.empty() ? "" : ", ") + name + "=" + value;
    }
    all.push_back(dump(title, c));
  }
  std::ofstream(argv[1]) << all.dump(1);
  return 0;
}
