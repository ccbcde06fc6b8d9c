// A decoder of blocks between a table (or two) and a head: what Llama, GPT-NeoX and GPT-2 have in common. Torch room.
#pragma once
#include <functional>

#include "harness/workload/describe.h"
#include "harness/workload/layers.h"

namespace harness {

class CausalModel final : public fsdp::Module {
 public:
  // `positions`: ids 0, 1, ... of every step; read when the names have a table of positions.
  CausalModel(const CausalNames& names, const ModelSettings& m, at::Tensor positions);
  std::shared_ptr<fsdp::Parameter> table() const { return table_.weight(); }
  ModuleList& blocks() { return blocks_; }

 protected:
  fsdp::Tensors forward(fsdp::Tensors inputs) override;

 private:
  at::Tensor positions_;
  Embedding& table_;
  Embedding* position_table_;
  ModuleList& blocks_;
  fsdp::Module& norm_;
};

// Ids -> logits. Named. `add_blocks` fills the list.
std::unique_ptr<fsdp::Module> build_causal(const CausalNames& names, const ModelSettings& m, bool meta,
                                           const std::function<void(ModuleList& blocks)>& add_blocks);

}  // namespace harness
