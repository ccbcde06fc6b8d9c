// MemoryMeter: counts every byte of one rank by category, keeps the peak with its cause, and enforces a budget.
// Plain C++: the torch allocators, the virtual world and `plan` all count with it. Not thread-safe: one per rank,
// used by the rank's own thread.
#pragma once
#include <array>
#include <string>
#include <string_view>

#include "fsdp/core/types.h"

namespace fsdp {

enum class MemoryCategory : std::uint8_t {
  kParameters,   // sharded (or, with no_shard, whole) master parameters
  kGradients,    // sharded (no_shard: whole) gradients, kept until the optimizer has run
  kOptimizer,    // optimizer state
  kUnsharded,    // gathered full parameters of units
  kReduce,       // reduce-scatter / all-reduce inputs
  kActivations,  // what the model keeps or makes: activations, gradients in flight before packing, scratch
  kOther,        // inputs, tables, the runtime's own odds and ends
};
inline constexpr int kMemoryCategoryCount = 7;
std::string_view name_of(
    MemoryCategory c);  // "parameters", "gradients", "optimizer state", "unsharded parameters", ...

using BytesByCategory = std::array<Bytes, kMemoryCategoryCount>;

// Where the program is, for causes: set by the scheduler at each hook.
struct MemoryContext {
  UnitId unit = kNoUnit;
  Pass pass = Pass::kNone;
};

struct MemoryPeak {
  Bytes total = 0;
  BytesByCategory at_peak{};  // live bytes of each category at the instant of the total peak
  MemoryContext where;        // what was running then
};

// Told of every byte in order: a model of an allocator below the counted bytes. It must outlive its meter's use.
class MemoryObserver {
 public:
  virtual ~MemoryObserver() = default;
  virtual void added(Bytes n, MemoryCategory c) = 0;
  virtual void removed(Bytes n, MemoryCategory c) = 0;
};

class MemoryMeter {
 public:
  static constexpr Bytes kNoBudget = -1;

  // Throws OutOfMemory when the budget would be passed; the request is then not counted.
  // The exception's cause is "unit 3, backward, unsharded parameters" until set_unit_namer() has given the units names.
  void add(Bytes n, MemoryCategory c);
  void sub(Bytes n, MemoryCategory c);

  void set_budget(Bytes budget) { budget_ = budget; }
  void set_observer(MemoryObserver* observer) { observer_ = observer; }
  void set_context(MemoryContext c) { context_ = c; }
  void set_unit_namer(std::string (*namer)(const void* self, UnitId), const void* self) {
    namer_ = namer, namer_self_ = self;
  }
  MemoryContext context() const { return context_; }

  Bytes live() const { return live_; }
  const BytesByCategory& live_by_category() const { return by_; }
  const BytesByCategory& peak_by_category() const { return peak_by_; }  // each category's own peak
  const MemoryPeak& peak() const { return peak_; }
  void reset_peak();  // peaks start again from what is live
  // "model.layers.3, backward, unsharded parameters": unit and pass at the peak, category with the largest share then.
  std::string peak_cause() const;
  std::string describe(MemoryContext where, MemoryCategory c) const;

 private:
  Bytes live_ = 0;
  Bytes budget_ = kNoBudget;
  BytesByCategory by_{}, peak_by_{};
  MemoryPeak peak_;
  MemoryContext context_;
  MemoryObserver* observer_ = nullptr;
  std::string (*namer_)(const void*, UnitId) = nullptr;
  const void* namer_self_ = nullptr;
};

}  // namespace fsdp
