#include "harness/sweep/settings.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <type_traits>
#include <variant>

#include "fsdp/core/errors.h"
#include "harness/sweep/quantities.h"
#include "harness/sweep/setting_checks.h"
#include "harness/sweep/text.h"

namespace harness {
namespace {

using Member = std::variant<std::string CaseSettings::*, int CaseSettings::*, std::uint64_t CaseSettings::*>;

struct Row {
  const char* name;
  const char* values;
  const char* help;
  Member member;
  std::string (*check)(const std::string& text);  // to canonical text, or ConfigError
  const char* empty = nullptr;                    // the text of "" or 0, where that is a default of its own
};

using C = CaseSettings;
const std::vector<Row>& rows() {
  static const std::vector<Row> kRows = {
      {"device", "cpu, cuda, virtual", "where the ranks compute", &C::device, checks::device},
      {"model", "preset or FILE.json",
       "a preset (llama: 4 layers, dim 128; gpt2, t5, llama-3-8b, ...) or the path of a Hugging Face config.json",
       &C::model, checks::model},
      {"set", "NAME=VALUE,...",
       "dimensions that differ from the model's: layers=8,dim=512,heads=8,kv_heads=8,ffn=1376,vocab=4096,tied=false; "
       "frozen=*.mlp.*+lm_head.*",
       &C::set, checks::overrides, "none"},
      {"world", "1, 2, ...", "number of ranks", &C::world, checks::positive},
      {"batch", "1, 2, ...", "samples per rank and micro-batch", &C::batch, checks::positive},
      {"seq", "model, 1, 2, ...", "tokens per sample", &C::seq, checks::seq, "model"},
      {"accumulate", "1, 2, ...", "micro-batches per optimizer step", &C::accumulate, checks::positive},
      {"accumulate_sync", "every, last", "after which micro-batch gradients are reduced", &C::accumulate_sync,
       checks::accumulate_sync},
      {"wrap", "root, block, blocks:K, sublayer, size:MIN_PARAMS, class:NAME[,NAME...], plan:FILE.yaml",
       "which parameters travel together", &C::wrap, checks::wrap},
      {"strategy", "full_shard, shard_grad_op, no_shard, hybrid_shard:GROUP, hybrid_shard_zero2:GROUP",
       "what is sharded", &C::strategy, checks::strategy},
      {"reshard_after_forward", "auto, true, false, GROUP",
       "give full parameters back after forward; auto: by strategy, the root is kept", &C::reshard_after_forward,
       checks::reshard},
      {"forward_prefetch", "0, 1, ...", "units gathered ahead in forward", &C::forward_prefetch, checks::natural},
      {"backward_prefetch", "none, post, pre, pre:K", "when the next unit is gathered in backward, and how many ahead",
       &C::backward_prefetch, checks::backward_prefetch},
      {"max_inflight", "auto, none, UNITS, SIZE",
       "unsharded units or bytes in flight; auto: the larger prefetch depth + 1, at least 2", &C::max_inflight,
       checks::max_inflight},
      {"reduce_scatter_slots", "1, 2, ...", "reduce-scatter inputs in flight", &C::reduce_scatter_slots,
       checks::positive},
      {"prefetch_order", "recorded, FILE",
       "order that prefetch follows: as the units ran, or FILE with unit names, one a line", &C::prefetch_order,
       checks::word},
      {"reduce_scatter_communicator", "shared, own", "whether reduce-scatters queue behind all-gathers",
       &C::reduce_scatter_communicator, checks::communicator},
      {"param_dtype", "fp32, bf16", "type that parameters are gathered and used in", &C::param_dtype,
       checks::param_dtype},
      {"reduce_dtype", "fp32, bf16", "type that gradients are reduced in", &C::reduce_dtype, checks::reduce_dtype},
      {"output_dtype", "auto, fp32, bf16", "type that a unit hands its outputs on in; auto: as they are computed",
       &C::output_dtype, checks::output_dtype},
      {"buffer_dtype", "fp32, bf16", "type of the model's buffers (rotary tables)", &C::buffer_dtype,
       checks::buffer_dtype},
      {"layout", "flat, per_parameter", "how a unit's parameters are cut", &C::layout, checks::layout},
      {"checkpoint", "none, block", "recompute activations of each block in backward", &C::checkpoint,
       checks::checkpoint},
      {"optimizer", "adamw, sgd", "update rule", &C::optimizer, checks::optimizer},
      {"clip", "none, NORM", "global gradient norm to clip to", &C::clip, checks::clip},
      {"collectives", "auto, local, gloo, nccl", "who carries bytes between ranks; auto: local on cpu", &C::collectives,
       checks::collectives},
      {"nccl_ctas", "auto, MAX, MIN-MAX", "cuda: thread blocks of a collective, for instance 16 or 4-16", &C::nccl_ctas,
       checks::nccl_ctas},
      {"nccl_buffers", "plain, registered", "cuda: flat buffers registered with NCCL, for direct transfers",
       &C::nccl_buffers, checks::nccl_buffers},
      {"wire", "none, LATENCY,BANDWIDTH", "emulated network, for instance 50us,10GB/s", &C::wire, checks::wire},
      {"memory_budget", "none, SIZE", "bytes per rank; passing it ends the case as oom, for instance 400MiB",
       &C::memory_budget, checks::memory_budget},
      {"hardware", "none, preset, FILE.yaml",
       "virtual: machine to predict for, a preset (a100-80gb, h100-sxm, mi300x, ...; a wrong name lists all) or what "
       "`calibrate` wrote; none: cpu-core",
       &C::hardware, checks::word, "none"},
      {"ranks_per_node", "auto, 1, 2, ...", "virtual: ranks of one node; auto: the hardware's", &C::ranks_per_node,
       checks::ranks_per_node, "auto"},
      {"network", "auto, preset", "virtual: network between nodes (a wrong name lists all); auto: the hardware's",
       &C::network, checks::word, "auto"},
      {"arrival_skew", "none, RANK:TIME[,...]",
       "virtual: by how much a rank comes later to every collective than the others, for instance 3:250us",
       &C::arrival_skew, checks::arrival_skew},
      {"seed", "0, 1, ...", "of weights and data", &C::seed, checks::seed},
      {"steps", "1, 2, ...", "optimizer steps of one repetition", &C::steps, checks::positive},
      {"warmup", "0, 1, ...", "steps before the first repetition", &C::warmup, checks::natural},
      {"step_timeout", "TIME", "a rank that waits longer ends the trial as timeout", &C::step_timeout,
       checks::step_timeout},
  };
  return kRows;
}

std::string text_of(const CaseSettings& c, const Row& row) {
  return std::visit(
      [&](auto member) {
        if constexpr (std::is_same_v<decltype(member), std::string CaseSettings::*>) {
          return row.empty && (c.*member).empty() ? std::string(row.empty) : c.*member;
        } else {
          return row.empty && c.*member == 0 ? std::string(row.empty) : std::to_string(c.*member);
        }
      },
      row.member);
}

void store(CaseSettings& c, const Row& row, const std::string& canonical) {
  const bool empty = row.empty && canonical == row.empty;
  std::visit(
      [&](auto member) {
        using Value = std::remove_reference_t<decltype(c.*member)>;
        if constexpr (std::is_same_v<Value, std::string>) {
          c.*member = empty ? "" : canonical;
        } else {
          c.*member = empty ? 0 : static_cast<Value>(std::stoull(canonical));
        }
      },
      row.member);
}

const Row& find_row(const std::string& name) {
  std::vector<std::string> names;
  for (const Row& row : rows()) {
    if (name == row.name) return row;
    names.emplace_back(row.name);
  }
  throw fsdp::ConfigError(fmt::format("[{}] unknown setting; nearest: {}", name, nearest(name, names)));
}

}  // namespace

const std::vector<SettingInfo>& setting_table() {
  static const std::vector<SettingInfo> kTable = [] {
    std::vector<SettingInfo> table;
    for (const Row& row : rows()) table.push_back({row.name, row.values, row.help, text_of(CaseSettings{}, row)});
    return table;
  }();
  return kTable;
}

void apply_setting(CaseSettings& c, const std::string& name, const std::string& text) {
  const Row& row = find_row(name);
  const std::string t = trim(text);
  try {
    store(c, row, row.empty && t == row.empty ? t : row.check(t));
  } catch (const fsdp::ConfigError& e) {
    const std::string what = e.what();
    throw fsdp::ConfigError(what.rfind("[" + name, 0) == 0 ? what : with_place(name, what));
  }
}

std::string setting_text(const CaseSettings& c, const std::string& name) { return text_of(c, find_row(name)); }

std::vector<std::pair<std::string, std::string>> all_settings(const CaseSettings& c) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const Row& row : rows()) out.emplace_back(row.name, text_of(c, row));
  return out;
}

std::string to_json(const CaseSettings& c) {
  nlohmann::ordered_json out;
  for (const Row& row : rows()) {
    const std::string text = text_of(c, row);
    const bool text_valued =
        std::holds_alternative<std::string CaseSettings::*>(row.member) || (row.empty && text == row.empty);
    if (text_valued) {
      out[row.name] = text;
    } else {
      out[row.name] = std::stoull(text);
    }
  }
  return out.dump();
}

CaseSettings settings_from_json(const std::string& text) {
  CaseSettings c;
  try {
    const auto document = nlohmann::json::parse(text);
    if (!document.is_object()) throw fsdp::ConfigError("[settings] not a JSON object; give {\"model\":\"llama\",...}");
    for (const auto& [name, value] : document.items()) {
      apply_setting(c, name, value.is_string() ? value.get<std::string>() : value.dump());
    }
  } catch (const nlohmann::json::exception& e) {
    throw fsdp::ConfigError(fmt::format("[settings] not JSON: {}; give an object with settings", e.what()));
  }
  return c;
}

}  // namespace harness
