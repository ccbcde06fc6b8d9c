#include "harness/trial/op_observer.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <unordered_map>

namespace harness {
namespace {

constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local OpObserver* observer = nullptr;
thread_local int depth = 0;

struct Depth {
  Depth() { ++depth; }
  ~Depth() { --depth; }
};

// What is known of an operator by its schema.
struct Known {
  bool leaf = false;
  std::string_view name;  // without the namespace
};
const Known& known(const c10::OperatorHandle& op) {
  static thread_local std::unordered_map<const void*, Known> table;
  auto [it, fresh] = table.try_emplace(&op.schema());
  if (fresh) {
    const std::string& name = op.schema().name();
    const auto colons = name.rfind("::");
    it->second.leaf = !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    it->second.name = std::string_view(name).substr(colons == std::string::npos ? 0 : colons + 2);
  }
  return it->second;
}

TensorShape shape_of(const at::Tensor& t) {
  if (!t.defined()) return {};
  const auto sizes = t.sizes();
  TensorShape s{{sizes.begin(), sizes.end()}, static_cast<int>(t.element_size())};
  if (s.sizes.empty()) s.sizes.push_back(1);
  return s;
}

void add(const c10::IValue& v, std::vector<TensorShape>& tensors, std::vector<std::int64_t>* integers) {
  if (v.isTensor()) {
    tensors.push_back(shape_of(v.toTensor()));
  } else if (v.isInt() && integers) {
    integers->push_back(v.toInt());
  } else if (v.isBool() && integers) {
    integers->push_back(v.toBool());
  } else if (v.isTensorList()) {
    for (const at::Tensor& t : v.toTensorVector()) tensors.push_back(shape_of(t));
  }
}

}  // namespace

// A template argument below: not in the unnamed namespace.
void observe_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  const Known& k = known(op);
  if (!k.leaf || observer == nullptr) return op.redispatchBoxed(below, stack);
  const Depth nested;
  if (depth > 1) return op.redispatchBoxed(below, stack);
  OpCall call{k.name, {}, {}, {}};
  for (const c10::IValue& v : torch::jit::last(*stack, op.schema().arguments().size()))
    add(v, call.inputs, &call.integers);
  observer->begins();
  op.redispatchBoxed(below, stack);
  observer->ended();
  for (const c10::IValue& v : torch::jit::last(*stack, op.schema().returns().size())) add(v, call.outputs, nullptr);
  observer->ran(call);
}

struct OpObserverScope::State {
  c10::impl::IncludeDispatchKeyGuard include{kKey};
};

OpObserverScope::OpObserverScope(OpObserver& o) : state_(std::make_unique<State>()) {
  observer = &o;
  depth = 0;
}
OpObserverScope::~OpObserverScope() { observer = nullptr; }

}  // namespace harness

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&harness::observe_operator>());
}
