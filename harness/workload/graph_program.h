// GraphProgram: an exported model's operators, ready to run through LibTorch's dispatcher with autograd: each operator
// looked up once, its arguments prepared, every value dropped with its last reader. Torch room.
//
// Modules call it range by range: run() of a call runs the operators of its range, and calls of modules inside go
// through `enter`, so that hooks of units and checkpointing see them as they see the modules of our own families.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/module/module.h"
#include "harness/workload/exported_model.h"

namespace harness {

at::ScalarType torch_type_of(int exported_dtype);

class GraphProgram {
 public:
  // `parameters`: by ParameterId; they have values while their unit is there. `enter(call, inputs)` calls the module of
  // a call. Throws fsdp::ConfigError for an operator that is not there, and for arguments that it does not take.
  GraphProgram(std::shared_ptr<const ExportedModel> model, std::vector<fsdp::Parameter*> parameters, at::Device device,
               std::function<fsdp::Tensors(std::size_t call, fsdp::Tensors inputs)> enter);

  // The value of a buffer or constant: by index of ExportedModel::states.
  void set_state(std::size_t state, at::Tensor value) { state_values_[state] = std::move(value); }

  // Inputs and outputs as the call names them. Throws what operators throw, with the operator's name and line.
  fsdp::Tensors run(std::size_t call, fsdp::Tensors inputs);
  // After the root's call: the loss; buffers take their new values.
  at::Tensor take_loss();

  bool random(std::size_t call) const { return random_[call]; }
  const ExportedModel& model() const { return *model_; }

 private:
  struct Operand {
    std::uint32_t position = 0;
    Slot slot = kNoSlot;
    std::int32_t state = -1;  // a parameter, buffer or constant
    bool last = false;        // nobody reads the value afterwards
  };
  struct ListOperand {
    std::uint32_t position = 0;
    bool optional = false;
    std::vector<Operand> entries;
  };
  struct Step {
    c10::OperatorHandle op;
    std::vector<c10::IValue> base;  // arguments but for tensors
    std::vector<Operand> operands;
    std::vector<ListOperand> lists;
    std::vector<Slot> outputs;
    bool list_output = false;
    bool attention = false;  // scaled_dot_product_attention, which has another body on meta
    bool view = false;
  };

  Step prepare(const GraphNode& node) const;
  void prepare_argument(const GraphNode& node, const GraphArgument& given, Step& step) const;
  void mark_last_readers();
  void find_random();
  at::Tensor take(const Operand& o);
  at::Tensor state_value(std::int32_t state) const;
  void execute(std::size_t node);
  void run_child(std::size_t call);
  [[noreturn]] void failed(std::size_t node, const std::string& what) const;

  std::shared_ptr<const ExportedModel> model_;
  std::vector<fsdp::Parameter*> parameters_;
  at::Device device_;
  std::function<fsdp::Tensors(std::size_t, fsdp::Tensors)> enter_;
  std::vector<Step> steps_;
  std::vector<std::int32_t> state_of_slot_, last_;
  std::vector<at::ScalarType> state_types_;
  std::vector<std::optional<at::ScalarType>> input_types_;  // by slot, where a call's input has a stated floating type
  std::vector<at::Tensor> state_values_, values_;
  std::vector<bool> random_;
  std::vector<c10::IValue> stack_;
};

}  // namespace harness
