// The layers that the families share, as Modules. Torch room.
#pragma once
#include "fsdp/module/module.h"
#include "fsdp/module/ops.h"

namespace harness {

class Linear final : public fsdp::Module {
 public:
  Linear(fsdp::Count in, fsdp::Count out, bool bias);
  // Tied to a table: no parameters of its own.
  explicit Linear(std::shared_ptr<fsdp::Parameter> weight);

 protected:
  fsdp::Tensors forward(fsdp::Tensors inputs) override;

 private:
  fsdp::Parameter* weight_;
  fsdp::Parameter* bias_ = nullptr;
};

// Its weight as [in, out], with a bias: GPT-2's.
class Conv1d final : public fsdp::Module {
 public:
  Conv1d(fsdp::Count in, fsdp::Count out);

 protected:
  fsdp::Tensors forward(fsdp::Tensors inputs) override;
};

class Embedding final : public fsdp::Module {  // ids -> rows of the table
 public:
  Embedding(fsdp::Count rows, fsdp::Count dim);
  explicit Embedding(std::shared_ptr<fsdp::Parameter> table);  // of another module
  std::shared_ptr<fsdp::Parameter> weight() const { return parameters().front().second; }

 protected:
  fsdp::Tensors forward(fsdp::Tensors inputs) override;
};

class RmsNorm final : public fsdp::Module {
 public:
  RmsNorm(const std::string& type, fsdp::Count dim, double eps);

 protected:
  fsdp::Tensors forward(fsdp::Tensors inputs) override;

 private:
  double eps_;
};

class LayerNorm final : public fsdp::Module {
 public:
  LayerNorm(fsdp::Count dim, double eps);

 protected:
  fsdp::Tensors forward(fsdp::Tensors inputs) override;

 private:
  double eps_;
};

// Children are added by the owner and run one after the other.
class ModuleList final : public fsdp::Module {
 public:
  ModuleList() : Module("ModuleList") {}
  template <class M, class... A>
  void append(A&&... arguments) {
    add_child<M>(std::to_string(children().size()), std::forward<A>(arguments)...).mark_block();
  }

 protected:
  fsdp::Tensors forward(fsdp::Tensors inputs) override;
};

// x + part(norm(x)), for parts with one input and one output.
at::Tensor residual(at::Tensor x, fsdp::Module& norm, fsdp::Module& part);

// cos and sin of position * theta^(-2j / rotary), fp32 of the double: [steps, rotary / 2].
struct RotaryTables {
  at::Tensor cos, sin;
};
RotaryTables make_rotary_tables(std::int64_t steps, std::int64_t rotary, double theta, fsdp::Dtype dtype, bool meta);

}  // namespace harness
