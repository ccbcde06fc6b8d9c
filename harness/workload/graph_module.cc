#include "harness/workload/graph_module.h"

#include <ATen/CPUGeneratorImpl.h>

#include <map>

#include "fsdp/core/errors.h"
#include "fsdp/module/counting_allocator.h"
#include "fsdp/module/tensor_device.h"
#include "fsdp/module/torch.h"
#include "harness/workload/exported_archive.h"
#include "harness/workload/graph_program.h"

namespace harness {
namespace {

using fsdp::ModuleId;
using fsdp::ModuleTree;
using fsdp::Tensors;

using Shared = std::map<fsdp::ParameterId, std::shared_ptr<fsdp::Parameter>>;

class GraphModule final : public fsdp::Module {
 public:
  GraphModule(const ModuleTree& tree, ModuleId id, Shared& shared)
      : Module(tree.modules[static_cast<std::size_t>(id)].type) {
    const fsdp::ModuleInfo& info = tree.modules[static_cast<std::size_t>(id)];
    if (info.is_block) mark_block();
    if (info.is_sublayer_start) mark_sublayer_start();
    for (const fsdp::ParameterId p : info.parameters) add(tree, info, p, shared);
    for (const ModuleId c : info.children) {
      const std::string& path = tree.modules[static_cast<std::size_t>(c)].path;
      add_child<GraphModule>(path.substr(info.path.empty() ? 0 : info.path.size() + 1), tree, c, shared);
    }
  }
  void set_program(std::shared_ptr<GraphProgram> program) { program_ = std::move(program); }
  // The one that the next call of this module is.
  void set_call(std::size_t call) { call_ = call; }

 protected:
  Tensors forward(Tensors inputs) override {
    if (!program_->random(call_) || call_ == 0) return program_->run(call_, std::move(inputs));
    return with_same_numbers(std::move(inputs));
  }

 private:
  void add(const ModuleTree& tree, const fsdp::ModuleInfo& info, fsdp::ParameterId p, Shared& shared) {
    const fsdp::ParameterInfo& parameter = tree.parameters[static_cast<std::size_t>(p)];
    std::string leaf = parameter.name;
    for (const std::string& alias : parameter.aliases)
      if (alias.rfind(info.path + ".", 0) == 0) leaf = alias;
    leaf = leaf.substr(leaf.rfind('.') + 1);
    if (const auto found = shared.find(p); found != shared.end()) {
      share_parameter(leaf, found->second);
      return;
    }
    add_parameter(leaf, parameter.shape, parameter.init).trainable = parameter.trainable;
    shared.emplace(p, parameters().back().second);
  }

  // What is computed again in backward draws the numbers of the first time.
  Tensors with_same_numbers(Tensors inputs) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    if (torch::autograd::get_current_graph_task_id() < 0) {
      numbers_ = generator.get_state();
      return program_->run(call_, std::move(inputs));
    }
    const at::Tensor now = generator.get_state();
    generator.set_state(numbers_);
    Tensors outputs = program_->run(call_, std::move(inputs));
    generator.set_state(now);
    return outputs;
  }

  std::shared_ptr<GraphProgram> program_;  // every module's; knows modules by their address alone
  std::size_t call_ = 0;
  at::Tensor numbers_;
};

at::Device device_of(bool meta) {
  return meta ? at::Device(at::kMeta) : fsdp::on_tensor_device(at::empty({0}, at::kFloat)).device();
}

at::Tensor value_of(const GraphState& s, const ExportedArchive& archive, const std::string& file) {
  if (s.record.empty())
    throw fsdp::ConfigError("[model] " + file + " has no value of the buffer " + s.name +
                            "; export it with weights, or predict it with --device virtual");
  at::Tensor t = at::empty(s.tensor.sizes, torch_type_of(s.tensor.dtype));
  archive.read(s.record, 0, t.nbytes(), t.mutable_data_ptr());
  return fsdp::on_tensor_device(t);
}

}  // namespace

std::unique_ptr<fsdp::Module> build_graph(const ModelSettings& m, bool meta) {
  const auto model = exported_model(m.file, m.fingerprint);
  Shared shared;
  auto root = std::make_unique<GraphModule>(model->tree, 0, shared);
  fsdp::name_modules(*root);
  std::vector<fsdp::Parameter*> parameters;
  for (const auto& [id, p] : shared) parameters.push_back(p.get());
  std::vector<GraphModule*> modules;
  for (fsdp::Module* module : fsdp::modules_of(*root)) modules.push_back(static_cast<GraphModule*>(module));
  const auto enter = [model, modules](std::size_t call, Tensors inputs) {
    GraphModule& module = *modules[static_cast<std::size_t>(model->calls[call].module)];
    module.set_call(call);
    return module(std::move(inputs));
  };
  auto program = std::make_shared<GraphProgram>(model, std::move(parameters), device_of(meta), enter);
  const fsdp::CategoryScope scope(fsdp::MemoryCategory::kOther);
  std::unique_ptr<ExportedArchive> archive;
  for (std::size_t s = 0; s < model->states.size(); ++s) {
    const GraphState& state = model->states[s];
    if (state.parameter >= 0) continue;
    if (!meta && !archive) archive = std::make_unique<ExportedArchive>(m.file);
    const auto options = at::TensorOptions().dtype(torch_type_of(state.tensor.dtype)).device(at::kMeta);
    program->set_state(s, meta ? at::empty(state.tensor.sizes, options) : value_of(state, *archive, m.file));
  }
  for (GraphModule* module : modules) module->set_program(program);
  return root;
}

void load_graph_weights(const ModelSettings& m, fsdp::ShardedModel& sharded) {
  const auto model = exported_model(m.file, m.fingerprint);
  if (!model->has_weights) return;
  std::map<std::string, const GraphState*> by_name;
  for (const GraphState& s : model->states)
    if (s.parameter >= 0 && !s.record.empty())
      by_name[model->tree.parameters[static_cast<std::size_t>(s.parameter)].name] = &s;
  const ExportedArchive archive(m.file);
  for (fsdp::UnitId u = 0; u < sharded.unit_count(); ++u) {
    const at::Tensor shard = sharded.shard(u).parameters;
    for (std::size_t p = 0; p < sharded.parameter_count(u); ++p) {
      const auto place = sharded.parameter_shard(u, p);
      const auto found = by_name.find(place.parameter->name);
      const fsdp::Count n = place.range.end - place.range.begin;
      if (found == by_name.end() || n <= 0) continue;
      at::Tensor values = at::empty({n}, torch_type_of(found->second->tensor.dtype));
      const auto element = static_cast<std::uint64_t>(values.element_size());
      archive.read(found->second->record, static_cast<std::uint64_t>(place.range.begin) * element, values.nbytes(),
                   values.mutable_data_ptr());
      shard.narrow(0, place.range.at, n).copy_(values);
    }
  }
}

void check_graph_checkpoint(const ModelSettings& m) {
  const auto model = exported_model(m.file, m.fingerprint);
  std::vector<int> calls(model->tree.modules.size());
  for (const GraphCall& c : model->calls) {
    const fsdp::ModuleInfo& module = model->tree.modules[static_cast<std::size_t>(c.module)];
    if (++calls[static_cast<std::size_t>(c.module)] > 1 && module.is_block)
      throw fsdp::ConfigError("[checkpoint] " + module.path + " of " + m.file +
                              " is called several times, and is not computed again; use checkpoint none");
  }
}

}  // namespace harness
