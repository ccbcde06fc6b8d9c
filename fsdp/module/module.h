// Module: a layer with a name, children and parameters. Not torch::nn: that cannot move to meta, keeps registered
// parameters of its own, and cannot let go of a parameter's value between its unit's uses.
//
// A parameter has a value only while its unit is unsharded. Calls go through operator(), which tells the hooks of a
// unit that starts or ends with this module.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/plan/module_tree.h"

namespace fsdp {

using Tensors = std::vector<at::Tensor>;

// Shared between owners when weights are tied.
struct Parameter {
  std::string name;  // full path of the first owner, after name_modules()
  std::vector<Count> shape;
  InitRule init = InitRule::kUniform;
  std::int32_t index = -1;  // position in the counter-based initialisation, after name_modules()
  int owners = 1;           // modules that hold it
  bool trainable = true;    // false: frozen; set before the model is sharded
  std::string unit;         // name of the unit that holds it, of a sharded model
  at::Tensor value;         // set while its unit is unsharded

  // Returns what a module computes with: the value, or this owner's reader of it. Every owner asks once per forward.
  // Throws Error, with parameter and unit, where there is no value.
  at::Tensor read();
  void set(at::Tensor v) { readers_.clear(), value = std::move(v); }

 private:
  Tensors readers_;
};

class Module;

// What a unit does around the call of its first and last module.
class ModuleHooks {
 public:
  virtual ~ModuleHooks() = default;
  // May replace inputs.
  virtual void before_forward(Module& module, Tensors& inputs) = 0;
  virtual void after_forward(Module& module, Tensors& outputs) = 0;
};

class Module {
 public:
  explicit Module(std::string type) : type_(std::move(type)) {}
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Inputs are taken over, so that a tensor that only the callee reads dies there. What PyTorch throws becomes an Error
  // that begins with the path of the innermost module.
  Tensors operator()(Tensors inputs);
  at::Tensor operator()(at::Tensor input);  // one in, one out

  const std::string& path() const { return path_; }
  const std::string& type() const { return type_; }
  const std::vector<std::pair<std::string, std::unique_ptr<Module>>>& children() const { return children_; }
  const std::vector<std::pair<std::string, std::shared_ptr<Parameter>>>& parameters() const { return parameters_; }
  bool is_block() const { return is_block_; }
  bool is_sublayer_start() const { return is_sublayer_start_; }

  // Marks for wrap policies, as in ModuleInfo.
  Module& mark_block() { return is_block_ = true, *this; }
  Module& mark_sublayer_start() { return is_sublayer_start_ = true, *this; }
  // Null: none. Must outlive the calls.
  void set_hooks(ModuleHooks* hooks) { hooks_ = hooks; }
  // Activations inside are not kept but computed again in backward (checkpoint.h). The hooks of a unit that starts and
  // ends here stay outside.
  void set_checkpointed(bool on) { checkpointed_ = on; }
  // The computation alone, without hooks and checkpointing.
  Tensors compute(Tensors inputs) { return run(std::move(inputs)); }

 protected:
  virtual Tensors forward(Tensors inputs) = 0;

  template <class M, class... A>
  M& add_child(const std::string& name, A&&... arguments) {
    auto m = std::make_unique<M>(std::forward<A>(arguments)...);
    M& child = *m;
    children_.emplace_back(name, std::move(m));
    return child;
  }
  Parameter& add_parameter(const std::string& name, std::vector<Count> shape, InitRule init);
  Parameter& share_parameter(const std::string& name, std::shared_ptr<Parameter> existing);

 private:
  Tensors run(Tensors inputs);
  friend void name_modules(Module& root);
  std::string type_;
  std::string path_;
  std::vector<std::pair<std::string, std::unique_ptr<Module>>> children_;
  std::vector<std::pair<std::string, std::shared_ptr<Parameter>>> parameters_;
  bool is_block_ = false, is_sublayer_start_ = false;
  bool checkpointed_ = false;
  ModuleHooks* hooks_ = nullptr;
};

// Gives every module its path and every parameter its name and index, by a walk in pre-order. Once, when the tree
// stands.
void name_modules(Module& root);
// Modules in pre-order: index = ModuleId of tree_of().
std::vector<Module*> modules_of(Module& root);
// Parameters in order of first appearance: index = ParameterId of tree_of().
std::vector<std::shared_ptr<Parameter>> parameters_of(Module& root);
// What wrap policies see of the model. Equal to describe_model() of the same settings (a test holds them together).
ModuleTree tree_of(Module& root);

}  // namespace fsdp
