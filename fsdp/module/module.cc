#include "fsdp/module/module.h"

#include <unordered_map>

#include "fsdp/core/errors.h"
#include "fsdp/module/checkpoint.h"
#include "fsdp/module/ops.h"
#include "fsdp/module/torch.h"

namespace fsdp {

namespace {

[[noreturn]] void throw_unread(const Parameter& p) {
  const std::string name = "[" + (p.name.empty() ? "a parameter without a name" : p.name) + "] ";
  if (p.unit.empty())
    throw Error(name + "is read and has no value; shard the model, or set the value, before the model is called");
  throw Error(name + "is read while its unit " + p.unit +
              " is sharded, because none of the unit's modules is in its forward; call the unit's first module through "
              "its call operator, or put the module that reads it into the same unit");
}

// Says where it happened, and why, where that is for want of values.
[[noreturn]] void throw_of_module(const std::string& path, const std::string& type, const c10::Error& e) {
  std::string what = e.what_without_backtrace();
  what = what.substr(0, what.find('\n'));
  // "cannot be called on meta tensors", "Cannot copy out of meta tensor", ...; "metadata" has nothing to do with it.
  const bool no_values = what.find("meta tensor") != std::string::npos || what.find("Meta tensor") != std::string::npos;
  const std::string where = "[" + (path.empty() ? "the model" : path) + "] " + type + ": ";
  throw Error(
      no_values ? where + "needs the values of a tensor that has none (device meta, as in the virtual world): " + what +
                      "; let no shape and no branch depend on values, or use real tensors (--device cpu)"
                : where + what);
}

}  // namespace

at::Tensor Parameter::read() {
  if (!value.defined()) throw_unread(*this);
  if (owners == 1) return value;
  if (readers_.empty()) readers_ = ops::fork(value, owners);
  at::Tensor mine = std::move(readers_.back());
  readers_.pop_back();
  return mine;
}

Tensors Module::operator()(Tensors inputs) {
  if (hooks_ != nullptr) hooks_->before_forward(*this, inputs);
  Tensors outputs = checkpointed_ ? checkpoint(*this, std::move(inputs)) : run(std::move(inputs));
  if (hooks_ != nullptr) hooks_->after_forward(*this, outputs);
  return outputs;
}

Tensors Module::run(Tensors inputs) {
  try {
    return forward(std::move(inputs));
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::DistError&) {
    throw;
  } catch (const c10::Error& e) {
    throw_of_module(path_, type_, e);
  }
}

at::Tensor Module::operator()(at::Tensor input) {
  Tensors inputs;
  inputs.push_back(std::move(input));
  Tensors outputs = (*this)(std::move(inputs));
  SHARDSCOPE_CHECK(outputs.size() == 1, path_ + " gave " + std::to_string(outputs.size()) + " outputs");
  return std::move(outputs.front());
}

Parameter& Module::add_parameter(const std::string& name, std::vector<Count> shape, InitRule init) {
  auto p = std::make_shared<Parameter>();
  p->shape = std::move(shape);
  p->init = init;
  parameters_.emplace_back(name, std::move(p));
  return *parameters_.back().second;
}

Parameter& Module::share_parameter(const std::string& name, std::shared_ptr<Parameter> existing) {
  ++existing->owners;
  parameters_.emplace_back(name, std::move(existing));
  return *parameters_.back().second;
}

namespace {

std::string join(const std::string& path, const std::string& name) { return path.empty() ? name : path + "." + name; }

void collect(Module& m, std::vector<Module*>& out) {
  out.push_back(&m);
  for (const auto& [name, child] : m.children()) collect(*child, out);
}

}  // namespace

std::vector<Module*> modules_of(Module& root) {
  std::vector<Module*> out;
  collect(root, out);
  return out;
}

std::vector<std::shared_ptr<Parameter>> parameters_of(Module& root) {
  std::vector<std::shared_ptr<Parameter>> out;
  for (const Module* m : modules_of(root))
    for (const auto& [name, p] : m->parameters())
      if (p->index == static_cast<std::int32_t>(out.size())) out.push_back(p);
  return out;
}

void name_modules(Module& root) {
  std::int32_t next = 0;
  for (Module* m : modules_of(root)) {
    for (const auto& [name, child] : m->children_) child->path_ = join(m->path_, name);
    for (const auto& [name, p] : m->parameters_) {
      if (p->index >= 0) continue;  // a further owner
      p->name = join(m->path_, name);
      p->index = next++;
    }
  }
}

namespace {

void describe(const Module& m, const std::string& name, ModuleId parent, ModuleTree& tree,
              std::unordered_map<const Parameter*, ParameterId>& seen) {
  const ModuleId id = tree.add_module(parent, name, m.type());
  tree.modules[static_cast<std::size_t>(id)].is_block = m.is_block();
  tree.modules[static_cast<std::size_t>(id)].is_sublayer_start = m.is_sublayer_start();
  for (const auto& [leaf, p] : m.parameters()) {
    const auto at = seen.find(p.get());
    if (at == seen.end()) {
      const ParameterId parameter = tree.add_parameter(id, leaf, p->shape, p->init);
      tree.parameters[static_cast<std::size_t>(parameter)].trainable = p->trainable;
      seen.emplace(p.get(), parameter);
    } else
      tree.share_parameter(id, leaf, at->second);
  }
  for (const auto& [child_name, child] : m.children()) describe(*child, child_name, id, tree, seen);
}

}  // namespace

ModuleTree tree_of(Module& root) {
  ModuleTree tree;
  std::unordered_map<const Parameter*, ParameterId> seen;
  describe(root, "", -1, tree, seen);
  return tree;
}

}  // namespace fsdp
