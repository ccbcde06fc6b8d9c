// What LibTorch lacks on meta without Python: kernels that say an operator's result without computing it. Torch room.
#pragma once
#include <ATen/core/ivalue.h>

#include <vector>

namespace harness {

// Once a process; only operators that have no such kernel of their own get one.
void register_meta_kernels();

// scaled_dot_product_attention with its arguments on the stack: the fused operator of the host, whose backward keeps
// queries, keys, values, result and log-sum-exp, where the host would choose it; else LibTorch's composition.
void attention_on_meta(std::vector<c10::IValue>& stack);

}  // namespace harness
