#include "harness/workload/describe.h"

namespace harness {

using fsdp::ModuleId;
using fsdp::ModuleTree;

ModuleTree describe_mlp(const ModelSettings& m) {
  ModuleTree tree;
  const ModuleId root = tree.add_module(-1, "", "MLP");
  const ModuleId layers = tree.add_module(root, "layers", "ModuleList");
  for (std::int64_t l = 0; l < m.layers; ++l) {
    const ModuleId block = add_block_module(tree, layers, l, "MLPBlock");
    for (const bool first : {true, false}) {
      const ModuleId linear = first ? add_linear(tree, block, "fc1", m.dim, m.ffn, true)
                                    : add_linear(tree, block, "fc2", m.ffn, m.dim, true);
      tree.modules[linear].is_sublayer_start = true;
    }
  }
  add_linear(tree, root, "head", m.dim, m.classes, true);
  return tree;
}

}  // namespace harness
