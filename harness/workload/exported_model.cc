// models/model.json -> operators and values.
#include "harness/workload/exported_model.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>

#include "fsdp/core/errors.h"
#include "harness/workload/exported_archive.h"
#include "harness/workload/exported_json.h"

namespace harness {
namespace exported {

void fail(const std::string& file, const std::string& what) {
  throw fsdp::ConfigError("[model] " + file + ": " + what);
}

}  // namespace exported

namespace {

using exported::fail;
using exported::json;
using Kind = GraphArgument::Kind;

constexpr int kSchema = 8;
constexpr std::uint64_t kLongestText = std::uint64_t{1} << 29;
constexpr const char* kTorch = "2.11";

// {"as_int": 3} -> "as_int" and 3: how torch.export writes a value of one of several kinds.
std::pair<std::string, const json&> only_entry(const json& j) {
  if (!j.is_object() || j.empty()) throw std::invalid_argument("a value without a kind");
  return {j.begin().key(), j.begin().value()};
}

class Reader {
 public:
  Reader(const ExportedTexts& texts, const std::string& file) : texts_(texts) {
    m_.file = file;
    file_ = file;
  }

  ExportedModel read() {
    const json document = parse(texts_.model, "models/model.json");
    check_schema(document);
    read_about();
    read_records();
    const json& module = document.at("graph_module");
    const json& graph = module.at("graph");
    tensors_ = &graph.at("tensor_values");
    read_inputs(module.at("signature").at("input_specs"));
    for (const json& n : graph.at("nodes")) read_node(n);
    m_.slots = static_cast<Slot>(names_.size());
    read_outputs(module.at("signature").at("output_specs"));
    infer_registered();
    std::map<std::string, fsdp::ParameterId> ids;
    exported::make_structure(m_, registered_, std::move(frames_), ids);
    place_parameters(ids);
    exported::finish_structure(m_);
    return std::move(m_);
  }

 private:
  json parse(const std::string& text, const char* member) const {
    json document = json::parse(text, nullptr, false);
    if (document.is_discarded())
      fail(file_, std::string(member) + " is not JSON; write the file with shardscope export");
    return document;
  }

  void check_schema(const json& document) const {
    const json& version = document.at("schema_version");
    const auto major = version.at("major").get<std::int64_t>();
    if (major == kSchema) return;
    const std::string torch = document.value("torch_version", std::string("another torch"));
    fail(file_, "was written by torch " + torch + " in schema " + std::to_string(major) + ", and schema " +
                    std::to_string(kSchema) + " is read; export it with torch " + kTorch);
  }

  void read_about() {
    if (texts_.about.empty()) return;
    const json about = parse(texts_.about, "extra/shardscope.json");
    m_.source = about.value("source", std::string());
    m_.batch = about.at("batch").get<std::int64_t>();
    m_.seq = about.at("seq").get<std::int64_t>();
    m_.has_weights = about.at("weights").get<bool>();
    for (const json& e : about.at("modules"))
      registered_.modules.push_back({e.at(0).get<std::string>(), e.at(1).get<std::string>()});
    for (const json& e : about.at("parameters")) {
      registered_.parameters.push_back({e.at("name").get<std::string>(), e.value("same_as", std::string()),
                                        e.at("shape").get<std::vector<std::int64_t>>(), e.at("trains").get<bool>()});
    }
    for (const json& e : about.at("inputs")) inputs_[e.at("name").get<std::string>()] = e;
  }

  ExportedTensor tensor_of(const json& meta, const std::string& name) const {
    ExportedTensor t;
    t.dtype = meta.at("dtype").get<int>();
    std::uint64_t numel = 1;
    for (const json& size : meta.at("sizes")) {
      if (!size.contains("as_int"))
        fail(file_, name + " has no fixed shape; export with fixed shapes, one file for each batch and seq");
      const auto n = size.at("as_int").get<std::int64_t>();
      if (n < 0 || (n > 0 && numel > (std::uint64_t{1} << 50) / static_cast<std::uint64_t>(n)))
        fail(file_, name + " has an impossible shape");
      numel *= static_cast<std::uint64_t>(n);
      t.sizes.push_back(n);
    }
    if (exported_element_bytes(t.dtype) == 0)
      fail(file_,
           name + " has a dtype (number " + std::to_string(t.dtype) + ") that is not run here; export in float32");
    return t;
  }

  // Records by the name of parameter, buffer or constant.
  void read_records() {
    const std::pair<const std::string&, const char*> lists[] = {{texts_.weights, "data/weights/"},
                                                                {texts_.constants, "data/constants/"}};
    for (const auto& [text, folder] : lists) {
      if (text.empty()) continue;
      const json document = parse(text, folder);
      for (const auto& [name, entry] : document.at("config").items()) {
        const json& meta = entry.at("tensor_meta");
        const bool pickled = entry.at("use_pickle").get<bool>();
        const bool on_meta = meta.at("device").at("type").get<std::string>() == "meta";
        Record r{folder + entry.at("path_name").get<std::string>(), tensor_of(meta, name),
                 meta.value("requires_grad", false)};
        if (pickled || on_meta) r.member.clear();
        records_.emplace(name, std::move(r));
      }
    }
  }

  Slot define(const std::string& name) {
    if (!names_.emplace(name, static_cast<Slot>(names_.size())).second)
      fail(file_, "the value " + name + " is defined twice");
    return static_cast<Slot>(names_.size()) - 1;
  }
  Slot slot_of(const json& tensor) const {
    const auto& name = tensor.at("name").get_ref<const std::string&>();
    const auto found = names_.find(name);
    if (found == names_.end()) fail(file_, "the value " + name + " is read before it is made");
    return found->second;
  }

  void read_inputs(const json& specs) {
    for (const json& spec : specs) {
      const auto [kind, body] = only_entry(spec);
      if (kind == "parameter") {
        add_state(body.at("arg").at("name"), body.at("parameter_name"), true);
      } else if (kind == "buffer") {
        add_state(body.at("arg").at("name"), body.at("buffer_name"), false);
      } else if (kind == "tensor_constant") {
        add_state(body.at("arg").at("name"), body.at("tensor_constant_name"), false);
      } else if (kind == "user_input" && body.at("arg").contains("as_tensor")) {
        add_input(body.at("arg").at("as_tensor").at("name"));
      } else {
        fail(file_,
             "its graph takes an input of kind " + kind + ", and tensors are run; export a module that takes tensors");
      }
    }
  }

  void add_state(const std::string& value, const std::string& name, bool parameter) {
    GraphState s;
    s.slot = define(value);
    s.name = name;
    s.tensor = tensor_of(tensors_->at(value), name);
    const auto found = records_.find(name);
    if (found != records_.end()) s.record = found->second.member;
    if (parameter) {
      s.parameter = 0;  // placed later
      parameter_names_.push_back(name);
    }
    m_.states.push_back(std::move(s));
  }

  void add_input(const std::string& value) {
    GraphInput in;
    in.slot = define(value);
    in.name = value;
    in.tensor = tensor_of(tensors_->at(value), value);
    if (const auto found = inputs_.find(value); found != inputs_.end()) {
      const std::string role = found->second.value("role", std::string("values"));
      in.role = role == "tokens"        ? GraphInput::Role::kTokens
                : role == "next_tokens" ? GraphInput::Role::kNextTokens
                                        : GraphInput::Role::kValues;
      in.low = found->second.value("low", std::int64_t{0});
      in.high = std::max(found->second.value("high", std::int64_t{2}), in.low + 1);
    }
    m_.inputs.push_back(std::move(in));
  }

  void read_node(const json& n) {
    GraphNode node;
    const auto target = n.at("target").get<std::string>();
    const json& metadata = n.at("metadata");
    set_target(node, target, metadata);
    // A check of what torch.export has traced; it makes nothing.
    if (n.at("outputs").empty() || node.op == "aten::_assert_tensor_metadata") return;
    for (const json& i : n.at("inputs")) node.arguments.push_back(argument_of(i, target));
    for (const json& o : n.at("outputs")) add_output(node, o, target);
    node.where = metadata.value("stack_trace", std::string());
    frames_.push_back(frames_of(metadata.value("nn_module_stack", std::string())));
    m_.nodes.push_back(std::move(node));
  }

  void set_target(GraphNode& node, const std::string& target, const json& metadata) const {
    const std::string head = "torch.ops.";
    const auto name = head.size(), overload = target.rfind('.');
    const auto space = target.find('.', name);
    if (!target.starts_with(head) || space == std::string::npos || space >= overload) {
      const std::string where = metadata.value("stack_trace", std::string());
      fail(file_, target + " is no operator" + (where.empty() ? "" : " (" + where + ")") +
                      "; write it without functions of functions");
    }
    node.op = target.substr(name, space - name) + "::" + target.substr(space + 1, overload - space - 1);
    node.overload = target.substr(overload + 1);
    if (node.overload == "default") node.overload.clear();
  }

  GraphArgument argument_of(const json& input, const std::string& target) const {
    GraphArgument a;
    a.name = input.at("name").get<std::string>();
    const auto [kind, v] = only_entry(input.at("arg"));
    if (kind == "as_none") {
    } else if (kind == "as_tensor") {
      a.kind = Kind::kTensor, a.slots = {slot_of(v)};
    } else if (kind == "as_tensors") {
      a.kind = Kind::kTensors;
      for (const json& t : v) a.slots.push_back(slot_of(t));
    } else if (kind == "as_optional_tensors") {
      a.kind = Kind::kTensors;
      for (const json& t : v) a.slots.push_back(t.contains("as_tensor") ? slot_of(t.at("as_tensor")) : kNoSlot);
    } else if (kind == "as_int") {
      a.kind = Kind::kInt, a.integers = {v.get<std::int64_t>()};
    } else if (kind == "as_ints") {
      a.kind = Kind::kInts, a.integers = v.get<std::vector<std::int64_t>>();
    } else if (kind == "as_sym_int" && v.contains("as_int")) {
      a.kind = Kind::kInt, a.integers = {v.at("as_int").get<std::int64_t>()};
    } else if (kind == "as_float") {
      a.kind = Kind::kFloat, a.numbers = {number(v)};
    } else if (kind == "as_floats") {
      a.kind = Kind::kFloats;
      for (const json& x : v) a.numbers.push_back(number(x));
    } else if (kind == "as_bool") {
      a.kind = Kind::kBool, a.integers = {v.get<bool>()};
    } else if (kind == "as_bools") {
      a.kind = Kind::kBools;
      for (const json& x : v) a.integers.push_back(x.get<bool>());
    } else if (kind == "as_string") {
      a.kind = Kind::kText, a.text = v.get<std::string>();
    } else if (kind == "as_scalar_type") {
      a.kind = Kind::kDtype, a.integers = {v.get<std::int64_t>()};
    } else if (kind == "as_device") {
      a.kind = Kind::kDevice;
    } else if (kind == "as_layout") {
      a.kind = Kind::kLayout;
    } else if (kind == "as_memory_format") {
      a.kind = Kind::kMemoryFormat, a.integers = {v.get<std::int64_t>()};
    } else {
      fail(file_, target + " takes an argument of kind " + kind + ", which is not run here; export with fixed shapes");
    }
    return a;
  }

  // Infinity and no number are words in JSON.
  double number(const json& v) const {
    if (v.is_number()) return v.get<double>();
    const auto word = v.get<std::string>();
    const double infinity = std::numeric_limits<double>::infinity();
    if (word == "inf" || word == "Infinity") return infinity;
    if (word == "-inf" || word == "-Infinity") return -infinity;
    if (word == "nan" || word == "NaN") return std::numeric_limits<double>::quiet_NaN();
    fail(file_, word + " is not a number");
  }

  void add_output(GraphNode& node, const json& output, const std::string& target) {
    const auto [kind, v] = only_entry(output);
    if (kind == "as_tensor") {
      node.outputs.push_back(define(v.at("name")));
    } else if (kind == "as_tensors") {
      node.list_output = true;
      for (const json& t : v) node.outputs.push_back(define(t.at("name")));
    } else if (kind == "as_none") {
      node.outputs.push_back(kNoSlot);
    } else {
      fail(file_, target + " gives a result of kind " + kind + ", which is not run here; export with fixed shapes");
    }
  }

  static exported::Frames frames_of(const std::string& stack) {
    exported::Frames frames;
    for (std::size_t from = 0; from < stack.size();) {
      const std::size_t end = std::min(stack.find(';', from), stack.size());
      const std::string part = stack.substr(from, end - from);
      const auto a = part.find(','), b = part.rfind(',');
      if (a != std::string::npos && b > a) {
        const std::string type = part.substr(b + 1);
        frames.push_back({part.substr(0, a), part.substr(a + 1, b - a - 1), type.substr(type.rfind('.') + 1)});
      }
      from = end + 1;
    }
    return frames;
  }

  void read_outputs(const json& specs) {
    for (const json& spec : specs) {
      const auto [kind, body] = only_entry(spec);
      if (kind == "buffer_mutation") {
        const std::string name = body.at("buffer_name");
        for (std::size_t s = 0; s < m_.states.size(); ++s)
          if (m_.states[s].name == name) m_.updates.emplace_back(slot_of(body.at("arg")), s);
      } else if ((kind == "user_output" || kind == "loss_output") && m_.loss == kNoSlot) {
        const json& arg = body.at("arg");
        const json* tensor = arg.contains("as_tensor") ? &arg.at("as_tensor") : kind == "loss_output" ? &arg : nullptr;
        if (tensor) set_loss(*tensor);
      }
    }
    if (m_.loss == kNoSlot)
      fail(file_, "its graph gives no loss; export a module that returns one, or with loss(output, ...)");
  }

  void set_loss(const json& tensor) {
    const ExportedTensor t = tensor_of(tensors_->at(tensor.at("name").get<std::string>()), "the loss");
    for (const std::int64_t n : t.sizes)
      if (n != 1)
        fail(file_,
             "its first result is not one number, so it is no loss; export with loss(output, *inputs) -> one number");
    m_.loss = slot_of(tensor);
  }

  // Of a file that another program wrote: modules from the graph, parameters from the list of weights.
  void infer_registered() {
    if (!registered_.modules.empty()) return;
    std::set<std::string> seen;
    const auto add = [&](const std::string& path, const std::string& type) {
      if (seen.insert(path).second) registered_.modules.push_back({path, type});
    };
    add("", frames_.empty() || frames_[0].empty() ? "Module" : frames_[0][0].type);
    for (const exported::Frames& frames : frames_)
      for (const exported::Frame& f : frames) add(f.path, f.type);
    std::map<std::string, std::string> by_member;
    for (const std::string& name : parameter_names_) {
      const Record& r = records_.at(name);
      const auto [first, fresh] = by_member.try_emplace(r.member.empty() ? name : r.member, name);
      registered_.parameters.push_back({name, fresh ? "" : first->second, r.tensor.sizes, r.requires_grad});
    }
    if (!m_.inputs.empty() && !m_.inputs[0].tensor.sizes.empty()) m_.batch = m_.inputs[0].tensor.sizes[0];
    m_.has_weights = std::none_of(m_.states.begin(), m_.states.end(),
                                  [](const GraphState& s) { return s.parameter >= 0 && s.record.empty(); });
  }

  void place_parameters(const std::map<std::string, fsdp::ParameterId>& ids) {
    for (GraphState& s : m_.states) {
      if (s.parameter < 0) continue;
      const auto found = ids.find(s.name);
      if (found == ids.end()) fail(file_, "the parameter " + s.name + " belongs to no module");
      s.parameter = found->second;
      const std::vector<fsdp::Count>& shape = m_.tree.parameters[static_cast<std::size_t>(s.parameter)].shape;
      if (!std::equal(shape.begin(), shape.end(), s.tensor.sizes.begin(), s.tensor.sizes.end()))
        fail(file_, "the parameter " + s.name + " has two shapes");
    }
  }

  struct Record {
    std::string member;
    ExportedTensor tensor;
    bool requires_grad = false;
  };
  const ExportedTexts& texts_;
  std::string file_;
  ExportedModel m_;
  exported::Registered registered_;
  std::map<std::string, json> inputs_;
  std::map<std::string, Record> records_;
  std::map<std::string, Slot> names_;
  std::vector<std::string> parameter_names_;
  std::vector<exported::Frames> frames_;
  const json* tensors_ = nullptr;
};

// Every value of a parameter, buffer or constant has as many bytes as its shape says.
void check_records(const ExportedModel& m, const ExportedArchive& archive) {
  for (const GraphState& s : m.states) {
    if (s.record.empty()) continue;
    std::uint64_t bytes = static_cast<std::uint64_t>(exported_element_bytes(s.tensor.dtype));
    for (const std::int64_t n : s.tensor.sizes) bytes *= static_cast<std::uint64_t>(n);
    if (archive.size(s.record) != bytes)
      fail(m.file, s.name + " has " + std::to_string(archive.size(s.record)) + " bytes and not " +
                       std::to_string(bytes) + "; write the file with shardscope export");
  }
}

ExportedModel read_file(const std::string& file) {
  const ExportedArchive archive(file);
  const auto optional = [&](const char* name) { return archive.has(name) ? archive.text(name, kLongestText) : ""; };
  ExportedTexts texts{archive.text("models/model.json", kLongestText), optional("extra/shardscope.json"),
                      optional("data/weights/model_weights_config.json"),
                      optional("data/constants/model_constants_config.json")};
  ExportedModel m = parse_exported(texts, file);
  m.fingerprint = archive.fingerprint();
  check_records(m, archive);
  return m;
}

}  // namespace

int exported_element_bytes(int dtype) {
  // byte, char, short, int, long, half, float, double, complex half, complex, complex double, bool, bfloat16
  constexpr int kBytes[] = {0, 1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 2};
  return dtype >= 0 && dtype < static_cast<int>(std::size(kBytes)) ? kBytes[dtype] : 0;
}

ExportedModel parse_exported(const ExportedTexts& texts, const std::string& file) {
  try {
    return Reader(texts, file).read();
  } catch (const json::exception& e) {
    fail(file, std::string("is not as torch.export writes it (") + e.what() + "); write it with shardscope export");
  } catch (const std::logic_error& e) {  // out of range, invalid argument
    fail(file, std::string("is not as torch.export writes it (") + e.what() + "); write it with shardscope export");
  }
}

std::shared_ptr<const ExportedModel> exported_model(const std::string& file, const std::string& fingerprint) {
  constexpr std::size_t kKept = 4;
  static std::mutex guard;
  static std::vector<std::shared_ptr<const ExportedModel>> kept;
  const std::lock_guard lock(guard);
  const std::string now = fingerprint.empty() ? ExportedArchive(file).fingerprint() : fingerprint;
  for (const auto& m : kept)
    if (m->file == file && m->fingerprint == now) return m;
  auto m = std::make_shared<const ExportedModel>(read_file(file));
  if (m->fingerprint != now)
    fail(file, "is not the file that this case was made from (" + m->fingerprint + ", not " + now +
                   "); export it again, or start a new result directory");
  if (kept.size() == kKept) kept.erase(kept.begin());
  kept.push_back(m);
  return m;
}

}  // namespace harness
