// Each operator against a plain composition of LibTorch's in double: values and gradients.
#include "fsdp/module/ops.h"

#include <ATen/record_function.h>
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "fsdp/module/relative_bias.h"
#include "fsdp/module/torch.h"

namespace fsdp {
namespace {

using at::Tensor;
using Inputs = std::vector<Tensor>;
using Function = std::function<Tensor(const Inputs&)>;

Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::kFloat); }

double distance(const Tensor& got, const Tensor& want) {
  const Tensor difference = (got.to(at::kDouble) - want).abs().max();
  return (difference / want.abs().max().clamp_min(1e-3)).item<double>();
}

// Same inputs through both, same random gradient back.
void expect_same(const Inputs& values, const Function& ours, const Function& plain) {
  Inputs a, b;
  for (const Tensor& v : values) {
    a.push_back(v.detach().clone().requires_grad_());
    b.push_back(v.detach().to(at::kDouble).requires_grad_());
  }
  const Tensor y = ours(a), want = plain(b);
  ASSERT_EQ(y.sizes(), want.sizes());
  EXPECT_LT(distance(y.detach(), want.detach()), 2e-6);
  const Tensor g = at::randn(want.sizes(), at::kDouble);
  y.backward(g.to(at::kFloat));
  want.backward(g);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(a[i].grad().defined()) << "input " << i;
    EXPECT_LT(distance(a[i].grad(), b[i].grad()), 1e-5) << "gradient of input " << i;
  }
}

Tensor heads_of(const Tensor& x, int64_t h) { return x.view({x.size(0), x.size(1), h, -1}).transpose(1, 2); }
Tensor plain_attention(const Tensor& q, const Tensor& k, const Tensor& v, double scale, bool causal,
                       const Tensor& bias = {}) {
  const int64_t group = q.size(1) / k.size(1);
  Tensor s = at::matmul(q, k.repeat_interleave(group, 1).transpose(-2, -1)) * scale;
  if (bias.defined()) s = s + bias;
  if (causal) s = s.masked_fill(at::ones({q.size(2), k.size(2)}, at::kBool).triu(1 + k.size(2) - q.size(2)), -INFINITY);
  return at::matmul(at::softmax(s, -1), v.repeat_interleave(group, 1))
      .transpose(1, 2)
      .reshape({q.size(0), q.size(2), -1});
}
Tensor plain_rope(const Tensor& x, const Tensor& cos, const Tensor& sin) {  // x: [b, t, h, d], tables [t, d / 2]
  const auto h = x.chunk(2, -1);
  const Tensor c = at::cat({cos, cos}, -1).unsqueeze(1), s = at::cat({sin, sin}, -1).unsqueeze(1);
  return x * c + at::cat({-h[1], h[0]}, -1) * s;
}

class Operators : public testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    at::manual_seed(7);
  }
};

TEST_F(Operators, LinearWithAndWithoutBias) {
  const Inputs with{random({2, 5, 33}), random({17, 33}), random({17})};
  expect_same(
      with, [](const Inputs& i) { return ops::linear(i[0], i[1], i[2]); },
      [](const Inputs& i) { return at::linear(i[0], i[1], i[2]); });
  expect_same(
      {with[0], with[1]}, [](const Inputs& i) { return ops::linear(i[0], i[1], {}); },
      [](const Inputs& i) { return at::linear(i[0], i[1]); });
  expect_same(
      {with[0], random({33, 17}), with[2]}, [](const Inputs& i) { return ops::linear(i[0], i[1], i[2], true); },
      [](const Inputs& i) { return at::matmul(i[0], i[1]) + i[2]; });
}

TEST_F(Operators, Norms) {
  expect_same(
      {random({2, 5, 70}), random({70})}, [](const Inputs& i) { return ops::rms_norm(i[0], i[1], 1e-5); },
      [](const Inputs& i) { return i[0] * at::rsqrt(i[0].square().mean(-1, true) + 1e-5) * i[1]; });
  expect_same(
      {random({2, 5, 70}), random({70}), random({70})},
      [](const Inputs& i) { return ops::layer_norm(i[0], i[1], i[2], 1e-5); },
      [](const Inputs& i) { return at::layer_norm(i[0], {70}, i[1], i[2], 1e-5); });
}

TEST_F(Operators, RopeTurnsWholeHeadsOrAPartOfTwoOfThree) {
  const Tensor angle = at::rand({9, 6}), cos = angle.cos(), sin = angle.sin();
  const Tensor c = cos.to(at::kDouble), s = sin.to(at::kDouble);
  expect_same(
      {random({2, 9, 4 * 12})},
      [&](const Inputs& i) {
        return ops::rope(i[0], cos, sin, {12, 1, 1});
      },
      [&](const Inputs& i) {
        return plain_rope(i[0].view({2, 9, 4, 12}), c, s).view({2, 9, 48});
      });
  expect_same(
      {random({2, 9, 2 * 3 * 20})},
      [&](const Inputs& i) {
        return ops::rope(i[0], cos, sin, {20, 3, 2});
      },
      [&](const Inputs& i) {
        const auto part = i[0].view({2, 9, 2, 3, 20}).unbind(3);
        auto turn = [&](const Tensor& t) {
          return at::cat({plain_rope(t.narrow(-1, 0, 12), c, s), t.narrow(-1, 12, 8)}, -1);
        };
        return at::stack({turn(part[0]), turn(part[1]), part[2]}, 3).reshape({2, 9, 120});
      });
}

TEST_F(Operators, AttentionWithGroupedQueries) {
  for (const bool causal : {true, false}) {
    for (const int64_t steps : {5, 64, 150}) {
      expect_same(
          {random({2, steps, 4 * 8}), random({2, steps, 2 * 8}), random({2, steps, 2 * 8})},
          [&](const Inputs& i) {
            return ops::attention(i[0], i[1], i[2], {4, 2, causal, 0.3});
          },
          [&](const Inputs& i) {
            return plain_attention(heads_of(i[0], 4), heads_of(i[1], 2), heads_of(i[2], 2), 0.3, causal);
          });
    }
  }
}

TEST_F(Operators, AttentionOnPackedHeads) {
  expect_same(
      {random({2, 70, 4 * 3 * 8})},
      [](const Inputs& i) {
        return ops::attention_packed(i[0], {4, 4, true, 0.3});
      },
      [](const Inputs& i) {
        const auto p = i[0].view({2, 70, 4, 3, 8}).unbind(3);
        return plain_attention(p[0].transpose(1, 2), p[1].transpose(1, 2), p[2].transpose(1, 2), 0.3, true);
      });
}

TEST_F(Operators, AttentionOnPackedParts) {
  expect_same(
      {random({2, 70, 3 * 4 * 8})},
      [](const Inputs& i) {
        return ops::attention_packed(i[0], {4, 4, true, 0.3}, false);
      },
      [](const Inputs& i) {
        const auto p = i[0].view({2, 70, 3, 4, 8}).unbind(2);
        return plain_attention(p[0].transpose(1, 2), p[1].transpose(1, 2), p[2].transpose(1, 2), 0.3, true);
      });
}

TEST_F(Operators, AttentionWithABiasThatAllSamplesShare) {
  for (const bool causal : {true, false}) {
    for (const int64_t keys : {5, 64, 150}) {
      const int64_t steps = causal ? keys : 70;
      expect_same(
          {random({2, steps, 4 * 8}), random({2, keys, 4 * 8}), random({2, keys, 4 * 8}), random({4, steps, keys})},
          [&](const Inputs& i) {
            return ops::attention(i[0], i[1], i[2], {4, 4, causal, 1.0}, i[3]);
          },
          [&](const Inputs& i) {
            return plain_attention(heads_of(i[0], 4), heads_of(i[1], 4), heads_of(i[2], 4), 1.0, causal, i[3]);
          });
    }
  }
}

TEST_F(Operators, RelativeBucketsAreThoseOfT5) {
  const auto both = [](std::int64_t d) { return ops::relative_bucket(d, 32, true, 128); };
  const auto behind = [](std::int64_t d) { return ops::relative_bucket(d, 32, false, 128); };
  // From Hugging Face T5Attention._relative_position_bucket.
  const std::vector<std::int64_t> distances = {-300, -128, -64, -33, -16, -9, -8, -1, 0, 1, 7, 8, 20, 63, 64, 200};
  std::vector<std::int64_t> got, got_behind;
  for (const auto d : distances) got.push_back(both(d)), got_behind.push_back(behind(d));
  EXPECT_THAT(got, testing::ElementsAre(15, 15, 14, 12, 10, 8, 8, 1, 0, 17, 23, 24, 26, 29, 30, 31));
  EXPECT_THAT(got_behind, testing::ElementsAre(31, 31, 26, 21, 16, 9, 8, 1, 0, 0, 0, 0, 0, 0, 0, 0));
}

TEST_F(Operators, RelativeBiasIsTheTableByDistance) {
  for (const bool both_ways : {true, false}) {
    Tensor ids = at::empty({9, 40}, at::kLong);
    for (std::int64_t i = 0; i < 9; ++i)
      for (std::int64_t j = 0; j < 40; ++j)
        ids.index_put_({at::tensor(i), at::tensor(j)}, at::tensor(ops::relative_bucket(j - i, 32, both_ways, 20)));
    expect_same(
        {random({32, 3})},
        [&](const Inputs& i) {
          return ops::relative_bias(i[0], {9, 40, 20, both_ways});
        },
        [&](const Inputs& i) {
          return at::embedding(i[0], ids).permute({2, 0, 1});
        });
  }
}

// What a cheap operator makes and a matrix product reads, by two readers.
struct Cheap {
  std::string name;
  Function make;
};
std::vector<Cheap> cheap_operators() {
  return {{"rms_norm", [](const Inputs& i) { return ops::rms_norm(i[0], i[1], 1e-5); }},
          {"layer_norm", [](const Inputs& i) { return ops::layer_norm(i[0], i[1], i[2], 1e-5); }},
          {"swiglu", [](const Inputs& i) { return ops::swiglu(i[0], i[3]); }},
          {"gelu", [](const Inputs& i) { return ops::gelu(i[0]); }}};
}
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
WeakStorage weak(const Tensor& t) { return WeakStorage(t.storage().getWeakStorageImpl()); }

// While it lives: the last result of each operator of this thread, without keeping it.
class Results {
 public:
  Results() {
    last().clear();
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(nullptr, [](const at::RecordFunction& fn, at::ObserverContext*) {
          if (!fn.outputs().empty() && fn.outputs().front().isTensor())
            last().insert_or_assign(fn.name(), weak(fn.outputs().front().toTensor()));
        }).needsOutputs(true));
  }
  ~Results() { at::removeCallback(handle_); }
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
  // Whether the operator has run, and its last result is still there.
  static bool ran(const std::string& name) { return last().contains(name); }
  static bool live(const std::string& name) { return !last().at(name).expired(); }

 private:
  static std::map<std::string, WeakStorage>& last() {
    static thread_local std::map<std::string, WeakStorage> results;
    return results;
  }
  at::CallbackHandle handle_;
};

struct Read {
  Inputs values;
  bool kept = false;  // is what the product read still there when forward is over
  // After backward, beside a reader that it did not reach.
  bool remade = false;        // was it made again
  bool remade_kept = false;   // and is still there
  bool operand_kept = false;  // is what it is made from
};
// Three readings, one of which backward does not reach. `seen`: what the product is given, from what was made.
Read read_twice(const Cheap& cheap, Inputs values, const std::function<Tensor(const Tensor&)>& seen,
                const std::function<void(Inputs&)>& between = {}) {
  for (Tensor& v : values) v = v.detach().clone().requires_grad_();
  Read r{values};
  Inputs operands = values;
  operands[0] = at::mul(values[0], 1);
  const WeakStorage operand = weak(operands[0]);
  std::vector<Tensor> readers = ops::fork(seen(cheap.make(operands)), 3);
  operands.clear();
  const WeakStorage made = weak(readers[0]);
  Tensor y = ops::linear(readers[0], values[4], {}), z = ops::linear(readers[1], values[5], values[6]);
  const Tensor unused = ops::linear(readers[2], values[4], {});
  readers.clear();
  r.kept = !made.expired();
  if (between) between(values);
  const Results results;
  at::add(y, z).backward(at::ones({2, 5, 17}));
  const std::string maker = "shardscope::" + cheap.name;
  r.remade = results.ran(maker);
  r.remade_kept = r.remade && results.live(maker);
  r.operand_kept = !operand.expired();
  return r;
}
Inputs values_to_read() {
  return {random({2, 5, 70}), random({70}),     random({70}), random({2, 5, 70}),
          random({17, 70}),   random({17, 70}), random({17})};
}

TEST_F(Operators, WhatACheapOperatorMadeIsMadeAgainToTheBitInsteadOfKept) {
  for (const Cheap& cheap : cheap_operators()) {
    SCOPED_TRACE(cheap.name);
    const Inputs values = values_to_read();
    const Read again = read_twice(cheap, values, [](const Tensor& t) { return t; });
    const Read kept = read_twice(cheap, values, [](const Tensor& t) { return t.view(t.sizes()); });  // an own node
    EXPECT_FALSE(again.kept);
    EXPECT_TRUE(kept.kept);
    EXPECT_TRUE(again.remade);
    EXPECT_FALSE(again.remade_kept) << "beside a reader that backward does not reach";
    EXPECT_FALSE(again.operand_kept);
    EXPECT_FALSE(kept.remade);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(again.values[i].grad().defined(), kept.values[i].grad().defined()) << i;
      if (kept.values[i].grad().defined()) {
        EXPECT_TRUE(at::equal(again.values[i].grad(), kept.values[i].grad())) << i;
      }
    }
  }
}

TEST_F(Operators, ParametersOfAUnitThatIsAwayAreNotNeededToMakeItAgain) {
  for (const Cheap& cheap : cheap_operators()) {
    SCOPED_TRACE(cheap.name);
    const Inputs values = values_to_read();
    const auto same = [](const Tensor& t) { return t; };
    const Read whole = read_twice(cheap, values, same);
    const Read without = read_twice(cheap, values, same, [](Inputs& i) {
      for (const std::size_t p : {1, 2}) i[p].detach().fill_(NAN);
    });
    for (const std::size_t product : {4, 5})
      EXPECT_TRUE(at::equal(whole.values[product].grad(), without.values[product].grad()));
  }
}

TEST_F(Operators, MeanOverSteps) {
  expect_same(
      {random({3, 7, 10})}, [](const Inputs& i) { return ops::mean_steps(i[0]); },
      [](const Inputs& i) { return i[0].mean(1); });
}

TEST_F(Operators, Activations) {
  expect_same(
      {random({2, 5, 70}), random({2, 5, 70})}, [](const Inputs& i) { return ops::swiglu(i[0], i[1]); },
      [](const Inputs& i) { return at::silu(i[0]) * i[1]; });
  expect_same(
      {random({2, 5, 70})}, [](const Inputs& i) { return ops::gelu(i[0]); },
      [](const Inputs& i) { return at::gelu(i[0]); });
  expect_same(
      {random({2, 5, 70})}, [](const Inputs& i) { return ops::gelu(i[0], true); },
      [](const Inputs& i) { return at::gelu(i[0], "tanh"); });
  expect_same(
      {random({2, 5, 70})}, [](const Inputs& i) { return ops::relu(i[0]); },
      [](const Inputs& i) { return at::relu(i[0]); });
}

TEST_F(Operators, EmbeddingAddsTheGradientsOfRepeatedIds) {
  const Tensor ids = at::randint(0, 11, {3, 7}, at::kLong);
  expect_same(
      {random({11, 6})}, [&](const Inputs& i) { return ops::embedding(i[0], ids); },
      [&](const Inputs& i) { return at::embedding(i[0], ids); });
}

TEST_F(Operators, CrossEntropyIsTheMeanOverRows) {
  const Tensor targets = at::randint(0, 101, {2, 6}, at::kLong);
  expect_same(
      {random({2, 6, 101})}, [&](const Inputs& i) { return ops::cross_entropy(i[0], targets); },
      [&](const Inputs& i) {
        return at::cross_entropy_loss(i[0].view({-1, 101}), targets.view({-1}));
      });
}

TEST_F(Operators, ForkAddsTheGradientsOfItsReaders) {
  expect_same(
      {random({4, 5})},
      [](const Inputs& i) {
        const auto r = ops::fork(i[0], 3);
        return r[0] * 2 + r[1] * r[2];
      },
      [](const Inputs& i) { return i[0] * 2 + i[0] * i[0]; });
}

TEST_F(Operators, ForkWithOneReaderUnusedGivesTheOthersGradient) {
  Tensor x = random({4}).requires_grad_();
  const auto r = ops::fork(x, 2);
  r[1].sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::ones({4})));
}

}  // namespace
}  // namespace fsdp
