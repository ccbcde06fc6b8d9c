// The table of settings: one row each, in the order of records, --help and JSON. How to add one: harness/README.md.
#include <fmt/format.h>

#include <type_traits>

#include "fsdp/core/errors.h"
#include "fsdp/plan/unit_options.h"
#include "harness/sweep/codec.h"
#include "harness/sweep/settings.h"

namespace harness {
namespace {

using C = CaseSettings;
using namespace codec;

// `at`: a member of CaseSettings, or a function from it to the value.
template <class At, class T>
SettingRow row(const char* name, At at, Codec<T> codec, Role role, const char* help) {
  SettingRow r;
  r.name = name, r.values = codec.values, r.help = help, r.role = role;
  r.number = std::is_integral_v<T>;
  r.parse = [=](C& c, const std::string& text, FileTexts& files) { std::invoke(at, c) = codec.parse(text, files); };
  r.print = [=](const C& c) { return codec.print(std::invoke(at, const_cast<C&>(c))); };
  r.file = codec.file;
  return r;
}
SettingRow on(DeviceKind device, SettingRow r) {
  r.only = device;
  r.help = (device == DeviceKind::kCuda ? "cuda: " : "virtual: ") + r.help;
  return r;
}
SettingRow shown(const char* values, SettingRow r) {
  r.values = values;
  return r;
}
// An option that plan files give too has its texts in the plan room.
SettingRow unit_row(const char* name, const char* help) {
  const fsdp::UnitOptionRow& option = fsdp::unit_option(name);
  SettingRow r;
  r.name = name, r.values = option.values, r.help = help;
  r.parse = [&option](C& c, const std::string& text, FileTexts&) { option.parse(c.unit, text); };
  r.print = [&option](const C& c) { return option.text(c.unit); };
  return r;
}

constexpr auto kCuda = DeviceKind::kCuda, kVirtual = DeviceKind::kVirtual;
constexpr Role kWork = Role::kWork, kPolicy = Role::kPolicy, kMeasuring = Role::kMeasuring, kGuard = Role::kGuard;

std::vector<SettingRow> what_is_run() {
  return {
      row("device", &C::device, choice<DeviceKind>({"cpu", "cuda", "virtual"}), kWork, "where the ranks compute"),
      row("runtime", &C::runtime, choice<Runtime>({"shardscope", "fsdp2", "fsdp1"}), kWork,
          "whose FSDP trains: this program's, or PyTorch's own (python3, or SHARDSCOPE_PYTHON, with torch)"),
      row("model", &C::model, model(), kWork,
          "a preset (llama: 4 layers, dim 128; gpt2, t5, llama-3-8b, ...) or the path of a Hugging Face config.json"),
      row("set", &C::set, overrides(), kWork,
          "dimensions that differ from the model's: "
          "layers=8,dim=512,heads=8,kv_heads=8,ffn=1376,vocab=4096,tied=false; frozen=*.mlp.*+lm_head.*"),
      row("world", &C::world, whole(1), kWork, "number of ranks"),
      row("batch", &C::batch, whole(1), kPolicy, "samples per rank and micro-batch"),
      row("seq", &C::seq, or_word("model", 0, whole(1, "model (the model's own length) or ")), kPolicy,
          "tokens per sample"),
      row("accumulate", &C::accumulate, whole(1), kPolicy, "micro-batches per optimizer step"),
      row("accumulate_sync", &C::accumulate_sync, choice<AccumulateSync>({"every", "last"}), kPolicy,
          "after which micro-batch gradients are reduced")};
}

std::vector<SettingRow> how_it_is_sharded() {
  return {row("wrap", &C::wrap, wrap(), kPolicy, "which parameters travel together"),
          unit_row("strategy", "what is sharded"),
          unit_row("reshard_after_forward",
                   "give full parameters back after forward; auto: by strategy, the root is kept")};
}

std::vector<SettingRow> what_overlaps() {
  return {row("forward_prefetch", &C::forward_prefetch, whole(0), kPolicy, "units gathered ahead in forward"),
          row("backward_prefetch", &C::backward_prefetch, backward_prefetch(), kPolicy,
              "when the next unit is gathered in backward, and how many ahead"),
          row("max_inflight", &C::max_inflight, or_nothing("auto", gate()), kPolicy,
              "unsharded units or bytes in flight; auto: the larger prefetch depth + 1, at least 2"),
          row("reduce_scatter_slots", &C::reduce_scatter_slots, whole(1), kPolicy, "reduce-scatter inputs in flight"),
          row("prefetch_order", &C::prefetch_order, prefetch_order(), kPolicy,
              "order that prefetch follows: as the units ran, or FILE with unit names, one a line"),
          row("reduce_scatter_communicator", &C::reduce_scatter_communicator,
              choice<ReduceScatterCommunicator>({"shared", "own"}), kPolicy,
              "whether reduce-scatters queue behind all-gathers")};
}

std::vector<SettingRow> how_a_step_computes() {
  return {unit_row("param_dtype", "type that parameters are gathered and used in"),
          unit_row("reduce_dtype", "type that gradients are reduced in"),
          unit_row("output_dtype", "type that a unit hands its outputs on in; auto: as they are computed"),
          row("buffer_dtype", &C::buffer_dtype, choice<fsdp::Dtype>({"fp32", "bf16"}), kPolicy,
              "type of the model's buffers (rotary tables)"),
          row(
              "layout", [](C& c) -> fsdp::Layout& { return c.unit.layout; },
              choice<fsdp::Layout>({"flat", "per_parameter"}), kPolicy, "how a unit's parameters are cut"),
          row("checkpoint", &C::checkpoint, choice<Checkpoint>({"none", "block"}), kPolicy,
              "recompute activations of each block in backward"),
          row("optimizer", &C::optimizer, choice<fsdp::OptimizerKind>({"adamw", "sgd"}), kWork, "update rule"),
          row("clip", &C::clip, or_nothing("none", norm()), kWork, "global gradient norm to clip to")};
}

std::vector<SettingRow> network_and_memory() {
  return {row("collectives", &C::collectives, choice<CollectivesKind>({"auto", "local", "gloo", "nccl"}), kWork,
              "who carries bytes between ranks; auto: local on cpu"),
          on(kCuda, row("nccl_ctas", &C::nccl_ctas, nccl_ctas(), kPolicy,
                        "thread blocks of a collective, for instance 16 or 4-16")),
          on(kCuda, row("nccl_buffers", &C::nccl_buffers, choice<NcclBuffers>({"plain", "registered"}), kPolicy,
                        "flat buffers registered with NCCL, for direct transfers")),
          row("wire", &C::wire, or_nothing("none", wire()), kWork, "emulated network, for instance 50us,10GB/s"),
          row("memory_budget", &C::memory_budget,
              or_word("none", fsdp::MemoryMeter::kNoBudget, size("none, or a size above 0, for instance 400MiB")),
              kWork, "bytes per rank; passing it ends the case as oom, for instance 400MiB")};
}

std::vector<SettingRow> prediction() {
  return {
      on(kVirtual, row("hardware", &C::hardware, hardware(), kWork,
                       "machine to predict for, a preset (a100-80gb, h100-sxm, mi300x, ...; a wrong name lists all) "
                       "or what `calibrate` wrote; none: cpu-core")),
      on(kVirtual, row("ranks_per_node", &C::ranks_per_node, or_word("auto", 0, whole(1, "auto or ")), kWork,
                       "ranks of one node; auto: the hardware's")),
      on(kVirtual, shown("auto, preset", row("network", &C::network, or_word("auto", std::string(), word()), kWork,
                                             "network between nodes (a wrong name lists all); auto: the hardware's"))),
      on(kVirtual, row("arrival_skew", &C::arrival_skew, or_word("none", ArrivalSkew(), arrival_skew()), kWork,
                       "by how much a rank comes later to every collective than the others, for instance 3:250us"))};
}

std::vector<SettingRow> measuring() {
  return {
      row("seed", &C::seed, seed(), kWork, "of weights and data"),
      row("steps", &C::steps, whole(1), kMeasuring, "optimizer steps of one repetition"),
      row("warmup", &C::warmup, whole(0), kMeasuring, "steps before the first repetition"),
      row("step_timeout", &C::step_timeout, duration(), kGuard, "a rank that waits longer ends the trial as timeout")};
}

}  // namespace

const std::vector<SettingRow>& setting_table() {
  static const std::vector<SettingRow> kTable = [] {
    std::vector<SettingRow> all;
    const std::pair<const char*, std::vector<SettingRow>> headings[] = {{"What is run", what_is_run()},
                                                                        {"How it is sharded", how_it_is_sharded()},
                                                                        {"What overlaps with what", what_overlaps()},
                                                                        {"How a step computes", how_a_step_computes()},
                                                                        {"Network and memory", network_and_memory()},
                                                                        {"Prediction (device virtual)", prediction()},
                                                                        {"Measuring", measuring()}};
    for (const auto& [heading, rows] : headings) {
      for (SettingRow r : rows) {
        r.heading = heading;
        r.standard = r.print(CaseSettings{});
        all.push_back(std::move(r));
      }
    }
    return all;
  }();
  return kTable;
}

}  // namespace harness
