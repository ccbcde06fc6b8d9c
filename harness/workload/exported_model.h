// ExportedModel: a model as torch.export wrote it: the operators in order, the values between them, which module each
// belongs to, and the tree of modules. Plain C++: what `plan` shows and what the torch room runs are made from it.
//
// Operators are numbered in the order in which they run; values ("slots") by their definition. The operators of one
// call of a module are one range. A module whose operators are not one range a call has no calls, and the tree says so.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/plan/module_tree.h"

namespace harness {

using Slot = std::int32_t;
constexpr Slot kNoSlot = -1;

// By the numbers of torch.export's schema, which are not those of c10.
struct ExportedTensor {
  int dtype = 0;
  std::vector<std::int64_t> sizes;
};

struct GraphArgument {
  enum class Kind : std::uint8_t {
    kNone,
    kTensor,
    kTensors,  // entries may be kNoSlot: absent
    kInt,
    kInts,
    kFloat,
    kFloats,
    kBool,
    kBools,
    kText,
    kDtype,
    kDevice,
    kLayout,
    kMemoryFormat
  };
  std::string name;
  Kind kind = Kind::kNone;
  std::vector<Slot> slots;
  std::vector<std::int64_t> integers;
  std::vector<double> numbers;
  std::string text;
};

struct GraphNode {
  std::string op, overload;  // "aten::add", "Tensor"; the default overload is empty
  std::vector<GraphArgument> arguments;
  std::vector<Slot> outputs;  // kNoSlot: nobody reads it
  bool list_output = false;   // one list, whose entries are the outputs
  std::string where;          // the user's line, if the file has it
  fsdp::ModuleId module = 0;  // the innermost one that it belongs to
};

struct GraphCall {
  fsdp::ModuleId module = 0;
  std::int32_t begin = 0, end = 0;   // operators
  std::vector<std::int32_t> inside;  // calls, in order
  std::vector<Slot> inputs;          // made before, read inside; without parameters and constants
  std::vector<Slot> outputs;         // made inside, read after
};

// Parameters, buffers and constants: what a graph has before its inputs come.
struct GraphState {
  Slot slot = kNoSlot;
  std::string name;
  std::string record;  // member of the archive with its value; empty: none
  ExportedTensor tensor;
  fsdp::ParameterId parameter = -1;  // -1: buffer or constant
};

struct GraphInput {
  enum class Role : std::uint8_t { kValues, kTokens, kNextTokens };
  Slot slot = kNoSlot;
  std::string name;
  ExportedTensor tensor;
  Role role = Role::kValues;
  std::int64_t low = 0, high = 2;  // of whole numbers: [low, high)
};

struct ExportedModel {
  std::string file, fingerprint, source;
  std::int64_t batch = 1;
  std::int64_t seq = 0;     // 0: inputs are no sequences
  bool has_weights = true;  // else only shapes: initial values are this program's
  fsdp::ModuleTree tree;    // children in the order in which they run
  std::vector<GraphNode> nodes;
  std::vector<GraphCall> calls;  // 0 the root's
  std::vector<GraphState> states;
  std::vector<GraphInput> inputs;
  Slot slots = 0, loss = kNoSlot;
  std::vector<std::pair<Slot, std::size_t>> updates;  // a value that becomes that of states[second] after forward
};

// Size of one element by a schema's dtype; 0: unknown.
int exported_element_bytes(int dtype);

// Throws fsdp::ConfigError with the file's name: what is wrong, what would be right. Files that were read are kept, by
// path and fingerprint; with an empty fingerprint the file is looked at again. A fingerprint that is not the file's is
// an error. Thread-safe.
std::shared_ptr<const ExportedModel> exported_model(const std::string& file, const std::string& fingerprint);

// Parts of it, for tests: `text` is models/model.json, `about` extra/shardscope.json or empty, `weights` and
// `constants` the lists of the archive's tensors.
struct ExportedTexts {
  std::string model, about, weights, constants;
};
ExportedModel parse_exported(const ExportedTexts& texts, const std::string& file);

}  // namespace harness
