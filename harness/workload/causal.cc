#include "harness/workload/causal.h"

#include "fsdp/module/counting_allocator.h"
#include "fsdp/module/tensor_device.h"
#include "fsdp/module/torch.h"

namespace harness {

using fsdp::Tensors;

CausalModel::CausalModel(const CausalNames& names, const ModelSettings& m, at::Tensor positions)
    : Module(names.model_type),
      positions_(std::move(positions)),
      table_(add_child<Embedding>(names.table, m.vocab, m.dim)),
      position_table_(names.positions.empty() ? nullptr : &add_child<Embedding>(names.positions, m.positions, m.dim)),
      blocks_(add_child<ModuleList>(names.blocks)),
      norm_(names.norm_type == "LayerNorm"
                ? static_cast<fsdp::Module&>(add_child<LayerNorm>(names.norm, m.dim, m.norm_eps))
                : add_child<RmsNorm>(names.norm, names.norm_type, m.dim, m.norm_eps)) {}

Tensors CausalModel::forward(Tensors inputs) {
  inputs = table_(std::move(inputs));
  if (position_table_ != nullptr) inputs[0] = at::add(inputs[0], (*position_table_)(positions_));
  return norm_(blocks_(std::move(inputs)));
}

namespace {

class CausalLm final : public fsdp::Module {
 public:
  CausalLm(const CausalNames& names, const ModelSettings& m, at::Tensor positions)
      : Module(names.type),
        model_(add_child<CausalModel>(names.model, names, m, std::move(positions))),
        head_(m.tied ? add_child<Linear>(names.head, model_.table())
                     : add_child<Linear>(names.head, m.dim, m.vocab, false)) {}
  ModuleList& blocks() { return model_.blocks(); }

 protected:
  Tensors forward(Tensors inputs) override { return head_(model_(std::move(inputs))); }

 private:
  CausalModel& model_;
  fsdp::Module& head_;
};

}  // namespace

std::unique_ptr<fsdp::Module> build_causal(const CausalNames& names, const ModelSettings& m, bool meta,
                                           const std::function<void(ModuleList& blocks)>& add_blocks) {
  at::Tensor positions;
  if (!names.positions.empty()) {
    const fsdp::CategoryScope scope(fsdp::MemoryCategory::kOther);
    positions = at::empty({1, m.seq}, at::TensorOptions().dtype(at::kLong).device(meta ? at::kMeta : at::kCPU));
    for (std::int64_t t = 0; t < m.seq && !meta; ++t) positions.mutable_data_ptr<std::int64_t>()[t] = t;
    if (!meta) positions = fsdp::on_tensor_device(positions);
  }
  auto model = std::make_unique<CausalLm>(names, m, std::move(positions));
  add_blocks(model->blocks());
  fsdp::name_modules(*model);
  return model;
}

}  // namespace harness
