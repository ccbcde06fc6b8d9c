// OpWork: what an operator does, from its name and the shapes it saw: floating-point operations, bytes, kernels. Plain
// C++; knows the operators of the runtime by name, anything else counts as element-wise work on its arguments.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/core/types.h"

namespace harness {

enum class OpKind : std::uint8_t {
  kFree,  // views, allocations: nothing runs
  kGemm,
  kAttention,
  kElementwise,
  kElementwiseBackward,
  kOptimizer,
  kCopy,
  kCopyOut,  // from the buffer of a gather to parameters of their own
};

struct TensorShape {
  std::vector<std::int64_t> sizes;
  int element_bytes = 4;
  std::int64_t numel() const;
  std::int64_t size(int dimension) const;  // negative: from the end; 0 when there is no such dimension
  double bytes() const { return static_cast<double>(numel()) * element_bytes; }
};

// One call: its tensors (undefined ones have no sizes and numel 0), its integers, booleans among them, in order.
struct OpCall {
  std::string_view name;  // "linear", "add": without a namespace or an overload
  std::vector<TensorShape> inputs, outputs;
  std::vector<std::int64_t> integers;
};

struct OpPart {
  double flops = 0, bytes = 0;
};
struct OpWork {
  OpKind kind = OpKind::kFree;
  bool half = false;          // 16-bit matrix product
  std::vector<OpPart> parts;  // one kernel after the other: the two products of a linear's backward
  int kernels = 0;            // that an eager framework launches for it
  double flops() const;
  double bytes() const;
};

OpWork work_of(const OpCall& call);

// A matrix product of b x [m, k] x [k, n].
OpPart gemm_part(double b, double m, double n, double k, double element_bytes);

}  // namespace harness
