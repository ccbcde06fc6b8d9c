#include "harness/workload/graph_program.h"

#include <algorithm>

#include "fsdp/core/errors.h"
#include "fsdp/module/torch.h"
#include "harness/workload/graph_meta.h"

namespace harness {
namespace {

using Kind = GraphArgument::Kind;
using c10::IValue;
using fsdp::Tensors;

at::MemoryFormat memory_format(std::int64_t code) {
  switch (code) {
    case 1:
      return at::MemoryFormat::Contiguous;
    case 2:
      return at::MemoryFormat::ChannelsLast;
    case 3:
      return at::MemoryFormat::ChannelsLast3d;
    default:
      return at::MemoryFormat::Preserve;
  }
}

// The type without "or nothing".
c10::TypePtr plain(const c10::TypePtr& type) {
  if (const auto optional = type->cast<c10::OptionalType>()) return optional->getElementType();
  return type;
}

// A number where a tensor is wanted: as Python's numbers, it leaves the other operand's type alone.
IValue wrapped(const GraphArgument& a) {
  at::Tensor t = a.kind == Kind::kFloat  ? at::scalar_tensor(a.numbers[0], at::kDouble)
                 : a.kind == Kind::kBool ? at::scalar_tensor(a.integers[0] != 0, at::kBool)
                                         : at::scalar_tensor(a.integers[0], at::kLong);
  t.unsafeGetTensorImpl()->set_wrapped_number(true);
  return t;
}

IValue numbers_of(const GraphArgument& a) {
  if (!a.numbers.empty()) return a.numbers;
  return std::vector<double>(a.integers.begin(), a.integers.end());
}

IValue list_value(const GraphArgument& a, const c10::Argument& argument, const c10::TypePtr& element) {
  const auto kind = element->kind();
  if (kind == c10::TypeKind::FloatType) return numbers_of(a);
  if (kind == c10::TypeKind::BoolType) {
    c10::List<bool> list;
    for (const std::int64_t b : a.integers) list.push_back(b != 0);
    return list;
  }
  if (a.kind == Kind::kInt)  // one number stands for all
    return std::vector<std::int64_t>(static_cast<std::size_t>(argument.N().value_or(1)), a.integers[0]);
  return a.integers;
}

IValue value_of(const GraphArgument& a, const c10::Argument& argument, at::Device device) {
  const c10::TypePtr type = plain(argument.real_type());
  const auto kind = type->kind();
  const bool number = a.kind == Kind::kInt || a.kind == Kind::kFloat || a.kind == Kind::kBool;
  if (number && kind == c10::TypeKind::TensorType) return wrapped(a);
  if (const auto list = type->cast<c10::ListType>(); list && a.kind != Kind::kNone)
    return list_value(a, argument, list->getElementType());
  switch (a.kind) {
    case Kind::kInt:
      if (kind == c10::TypeKind::FloatType) return static_cast<double>(a.integers[0]);
      return a.integers[0];
    case Kind::kFloat:
      return a.numbers[0];
    case Kind::kBool:
      return a.integers[0] != 0;
    case Kind::kText:
      return a.text;
    case Kind::kDtype:
      return static_cast<std::int64_t>(torch_type_of(static_cast<int>(a.integers[0])));
    case Kind::kDevice:
      return device;
    case Kind::kLayout:
      return static_cast<std::int64_t>(at::kStrided);
    case Kind::kMemoryFormat:
      return static_cast<std::int64_t>(memory_format(a.integers[0]));
    default:
      return {};
  }
}

// What was one range of memory for the tracer may not be one here: attention lays its result as its kernel likes.
void reshape(std::vector<IValue>& stack) {
  const std::vector<std::int64_t> sizes = stack[1].toIntVector();
  at::Tensor t = std::move(stack[0]).toTensor();
  stack.clear();
  stack.emplace_back(t.reshape(sizes));
}

bool is_random(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::nondeterministic_seeded) || op.schema().name().find("dropout") != std::string::npos;
}

}  // namespace

at::ScalarType torch_type_of(int dtype) {
  constexpr at::ScalarType kTypes[] = {
      at::kByte,  at::kByte,   at::kChar,        at::kShort,        at::kInt,           at::kLong, at::kHalf,
      at::kFloat, at::kDouble, at::kComplexHalf, at::kComplexFloat, at::kComplexDouble, at::kBool, at::kBFloat16};
  SHARDSCOPE_CHECK(dtype > 0 && dtype < static_cast<int>(std::size(kTypes)), "dtype " + std::to_string(dtype));
  return kTypes[dtype];
}

GraphProgram::GraphProgram(std::shared_ptr<const ExportedModel> model, std::vector<fsdp::Parameter*> parameters,
                           at::Device device, std::function<Tensors(std::size_t, Tensors)> enter)
    : model_(std::move(model)), parameters_(std::move(parameters)), device_(device), enter_(std::move(enter)) {
  const auto slots = static_cast<std::size_t>(model_->slots);
  state_of_slot_.assign(slots, -1);
  values_.resize(slots);
  input_types_.resize(slots);
  state_values_.resize(model_->states.size());
  for (std::size_t s = 0; s < model_->states.size(); ++s) {
    state_of_slot_[static_cast<std::size_t>(model_->states[s].slot)] = static_cast<std::int32_t>(s);
    state_types_.push_back(torch_type_of(model_->states[s].tensor.dtype));
  }
  if (device.is_meta()) register_meta_kernels();
  for (std::size_t n = 0; n < model_->nodes.size(); ++n) steps_.push_back(prepare(model_->nodes[n]));
  mark_last_readers();
  find_random();
}

GraphProgram::Step GraphProgram::prepare(const GraphNode& node) const {
  const auto op = c10::Dispatcher::singleton().findSchema({node.op, node.overload});
  if (!op)
    throw fsdp::ConfigError("[model] " + model_->file + ": there is no operator " + node.op +
                            (node.overload.empty() ? "" : "." + node.overload) + " in this LibTorch" +
                            (node.where.empty() ? "" : " (" + node.where + ")") +
                            "; write the module with operators of torch itself");
  Step step{*op,
            {},
            {},
            {},
            node.outputs,
            node.list_output,
            node.op == "aten::scaled_dot_product_attention",
            (node.op == "aten::view" && node.overload.empty()) || node.op == "aten::_unsafe_view"};
  for (const c10::Argument& a : op->schema().arguments())
    step.base.push_back(a.default_value() ? *a.default_value() : IValue());
  for (const GraphArgument& given : node.arguments) prepare_argument(node, given, step);
  return step;
}

void GraphProgram::prepare_argument(const GraphNode& node, const GraphArgument& given, Step& step) const {
  const auto& arguments = step.op.schema().arguments();
  const auto found =
      std::find_if(arguments.begin(), arguments.end(), [&](const auto& a) { return a.name() == given.name; });
  if (found == arguments.end())
    throw fsdp::ConfigError("[model] " + model_->file + ": " + node.op + " takes no argument " + given.name +
                            " in this LibTorch; export with torch 2.11");
  const auto position = static_cast<std::uint32_t>(found - arguments.begin());
  const auto operand = [&](Slot s) {
    return Operand{position, s, s == kNoSlot ? -1 : state_of_slot_[static_cast<std::size_t>(s)], false};
  };
  if (given.kind == Kind::kTensor) {
    step.operands.push_back(operand(given.slots[0]));
  } else if (given.kind == Kind::kTensors) {
    const auto list = plain(found->real_type())->cast<c10::ListType>();
    ListOperand l{position, list && list->getElementType()->kind() == c10::TypeKind::OptionalType, {}};
    for (const Slot s : given.slots) l.entries.push_back(operand(s));
    step.lists.push_back(std::move(l));
  } else {
    step.base[position] = value_of(given, *found, device_);
  }
}

// From the end: the first reader that is met is the last one.
void GraphProgram::mark_last_readers() {
  last_.assign(values_.size(), -1);
  const auto end = static_cast<std::int32_t>(steps_.size());
  last_[static_cast<std::size_t>(model_->loss)] = end;
  for (const auto& [slot, state] : model_->updates) last_[static_cast<std::size_t>(slot)] = end;
  const auto mark = [&](Operand& o, std::size_t n) {
    if (o.slot == kNoSlot || o.state >= 0) return;
    std::int32_t& last = last_[static_cast<std::size_t>(o.slot)];
    if (last >= 0) return;
    last = static_cast<std::int32_t>(n);
    o.last = true;
  };
  for (std::size_t n = steps_.size(); n-- > 0;) {
    Step& step = steps_[n];
    for (auto l = step.lists.rbegin(); l != step.lists.rend(); ++l)
      for (auto o = l->entries.rbegin(); o != l->entries.rend(); ++o) mark(*o, n);
    for (auto o = step.operands.rbegin(); o != step.operands.rend(); ++o) mark(*o, n);
    for (Slot& s : step.outputs)
      if (s != kNoSlot && last_[static_cast<std::size_t>(s)] < 0) s = kNoSlot;
  }
}

void GraphProgram::find_random() {
  for (const GraphCall& c : model_->calls)
    random_.push_back(
        std::any_of(steps_.begin() + c.begin, steps_.begin() + c.end, [](const Step& s) { return is_random(s.op); }));
}

void GraphProgram::failed(std::size_t node, const std::string& what) const {
  const GraphNode& n = model_->nodes[node];
  const std::string& module = model_->tree.modules[static_cast<std::size_t>(n.module)].path;
  const bool no_kernel =
      what.find("Meta tensors") != std::string::npos || what.find("overrideable") != std::string::npos;
  std::string text = "[model] " + model_->file + ": " + n.op + " in " + (module.empty() ? "the model" : module) +
                     (n.where.empty() ? "" : " (" + n.where + ")") + ": " +
                     (device_.is_meta() && no_kernel ? "it has no kernel for tensors without memory"
                                                     : what.substr(0, what.find('\n')));
  if (device_.is_meta()) text += "; it cannot be predicted, run it with --device cpu";
  throw fsdp::ConfigError(text);
}

at::Tensor GraphProgram::state_value(std::int32_t state) const {
  const auto s = static_cast<std::size_t>(state);
  const fsdp::ParameterId p = model_->states[s].parameter;
  const at::Tensor& value = p < 0 ? state_values_[s] : parameters_[static_cast<std::size_t>(p)]->value;
  SHARDSCOPE_CHECK(value.defined(), model_->states[s].name + " is read while its unit is away");
  return value.scalar_type() == state_types_[s] ? value : value.to(state_types_[s]);
}

at::Tensor GraphProgram::take(const Operand& o) {
  if (o.slot == kNoSlot) return {};
  if (o.state >= 0) return state_value(o.state);
  at::Tensor& value = values_[static_cast<std::size_t>(o.slot)];
  return o.last ? std::move(value) : value;
}

void GraphProgram::execute(std::size_t n) {
  Step& step = steps_[n];
  stack_.assign(step.base.begin(), step.base.end());
  for (const Operand& o : step.operands) stack_[o.position] = take(o);
  for (const ListOperand& l : step.lists) {
    if (l.optional) {
      c10::List<std::optional<at::Tensor>> list;
      for (const Operand& o : l.entries) list.push_back(o.slot == kNoSlot ? std::nullopt : std::optional(take(o)));
      stack_[l.position] = std::move(list);
    } else {
      c10::List<at::Tensor> list;
      for (const Operand& o : l.entries) list.push_back(take(o));
      stack_[l.position] = std::move(list);
    }
  }
  try {
    if (step.view)
      reshape(stack_);
    else if (step.attention && device_.is_meta())
      attention_on_meta(stack_);
    else
      step.op.callBoxed(stack_);
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& e) {
    failed(n, e.what_without_backtrace());
  }
  if (step.list_output) {
    const auto list = stack_[0].toTensorList();
    for (std::size_t i = 0; i < step.outputs.size(); ++i)
      if (step.outputs[i] != kNoSlot) values_[static_cast<std::size_t>(step.outputs[i])] = list.get(i);
  } else {
    for (std::size_t i = 0; i < step.outputs.size(); ++i)
      if (step.outputs[i] != kNoSlot)
        values_[static_cast<std::size_t>(step.outputs[i])] = std::move(stack_[i]).toTensor();
  }
  stack_.clear();
}

void GraphProgram::run_child(std::size_t c) {
  const GraphCall& call = model_->calls[c];
  Tensors inputs, kept;
  for (const Slot s : call.inputs) {
    at::Tensor& value = values_[static_cast<std::size_t>(s)];
    const bool lives_on = last_[static_cast<std::size_t>(s)] >= call.end;
    kept.push_back(lives_on ? value : at::Tensor());
    inputs.push_back(std::move(value));
  }
  Tensors outputs = enter_(c, std::move(inputs));
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (kept[i].defined()) values_[static_cast<std::size_t>(call.inputs[i])] = std::move(kept[i]);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    values_[static_cast<std::size_t>(call.outputs[i])] = std::move(outputs[i]);
}

Tensors GraphProgram::run(std::size_t c, Tensors inputs) {
  const GraphCall& call = model_->calls[c];
  if (c == 0) std::fill(values_.begin(), values_.end(), at::Tensor());
  const std::vector<Slot>* slots = &call.inputs;
  std::vector<Slot> all;
  if (c == 0) {
    for (const GraphInput& in : model_->inputs) all.push_back(in.slot);
    slots = &all;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) values_[static_cast<std::size_t>((*slots)[i])] = std::move(inputs[i]);
  inputs.clear();
  auto child = call.inside.begin();
  for (std::int32_t n = call.begin; n < call.end;) {
    if (child != call.inside.end() && model_->calls[static_cast<std::size_t>(*child)].begin == n) {
      const auto inner = static_cast<std::size_t>(*child++);
      run_child(inner);
      n = model_->calls[inner].end;
    } else {
      execute(static_cast<std::size_t>(n++));
    }
  }
  Tensors outputs;
  if (c == 0) return {take_loss()};
  for (const Slot s : call.outputs) outputs.push_back(std::move(values_[static_cast<std::size_t>(s)]));
  for (const Slot s : call.inputs) values_[static_cast<std::size_t>(s)].reset();
  return outputs;
}

at::Tensor GraphProgram::take_loss() {
  const at::AutoGradMode off(false);
  for (const auto& [slot, state] : model_->updates)
    state_values_[state] = std::exchange(values_[static_cast<std::size_t>(slot)], {}).detach();
  return std::move(values_[static_cast<std::size_t>(model_->loss)]);
}

}  // namespace harness
