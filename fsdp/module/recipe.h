// Recipe: how the result of a cheap operator (a norm, an activation) is made again in backward from what its own
// backward keeps anyway, so that a matrix product that reads it need not keep it too. Values are the same to the bit:
// the same operator runs on the same operands. Private to the room; one thread.
#pragma once
#include <functional>
#include <memory>
#include <utility>

#include "fsdp/module/torch.h"

namespace fsdp::ops {

class Recipe {
 public:
  explicit Recipe(std::function<at::Tensor()> make) : make_(std::move(make)) {}

  // In forward, by each operator that will ask in backward.
  void add_reader() { ++readers_; }
  // In backward, by each reader once: the first makes the result, the last lets it go.
  at::Tensor take() {
    if (!made_.defined()) made_ = make_();
    at::Tensor result = made_;
    pass();
    return result;
  }
  // By a reader that needs nothing.
  void pass() {
    if (++asked_ < readers_) return;
    asked_ = 0;
    made_.reset();
  }

 private:
  std::function<at::Tensor()> make_;
  at::Tensor made_;
  int readers_ = 0, asked_ = 0;
};

// A node whose output can be made again. What the recipe keeps goes when the node has run: its readers have run before.
struct Remaking : torch::autograd::Node {
  std::shared_ptr<Recipe> output;
  void remade_by(std::function<at::Tensor()> make) { output = std::make_shared<Recipe>(std::move(make)); }
  void release_variables() override { output.reset(); }
};

// How `t` is made again; none if it must be kept.
inline std::shared_ptr<Recipe> recipe_of(const at::Tensor& t) {
  const auto* const maker = dynamic_cast<const Remaking*>(t.grad_fn().get());
  return maker != nullptr ? maker->output : nullptr;
}

}  // namespace fsdp::ops
