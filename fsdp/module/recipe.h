// Recipe: how the result of a cheap operator (a norm, an activation) is made again in backward from what its own
// backward keeps anyway and, of a norm, a copy of its weight and bias, so that a matrix product that reads it need not
// keep it too. Values are the same to the bit: the same operator runs on the same operands. Private to the room; one
// thread.
#pragma once
#include <functional>
#include <memory>
#include <utility>

#include "fsdp/core/errors.h"
#include "fsdp/module/torch.h"

namespace fsdp::ops {

class Recipe {
 public:
  explicit Recipe(std::function<at::Tensor()> make) : make_(std::move(make)) {}

  // In forward, by each operator that will ask in backward.
  void add_reader() { ++readers_; }
  // In backward, by each reader once: the first makes the result, the last lets it go.
  at::Tensor take() {
    if (!made_.defined()) {
      SHARDSCOPE_CHECK(make_ != nullptr, "a reader in backward after the maker");
      made_ = make_();
    }
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
  // By the maker when it has run. A reader that backward does not reach holds the recipe, but nothing through it.
  void forget() {
    make_ = nullptr;
    made_.reset();
  }

 private:
  std::function<at::Tensor()> make_;
  at::Tensor made_;
  int readers_ = 0, asked_ = 0;
};

// A node whose output can be made again: the maker, or one that hands its output on. What the recipe keeps goes when
// the maker has run (Recipe::forget): those readers that backward reaches have run before.
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
