#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "fsdp/core/errors.h"
#include "harness/cli/commands.h"
#include "harness/sweep/text.h"
#include "harness/workload/exported_model.h"
#include "harness/workload/python_scripts.h"

namespace harness::cli {
namespace {

struct ExportFlags {
  std::string function, config, output, dtype = "fp32";
  int batch = 0, seq = 0;  // 0: the function's own, or 1 and 64
  bool no_weights = false;
};

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text.substr(text.find_last_of('\n') + 1);  // npos + 1 == 0
}

std::string command_of(const ExportFlags& f, const ScriptFolder& scripts) {
  std::string command = shell_quoted(user_python()) + " " + shell_quoted(scripts.file("export_model.py"));
  if (!f.function.empty()) command += " --function=" + shell_quoted(f.function);
  if (!f.config.empty()) command += " --hf=" + shell_quoted(f.config);
  command += " --output=" + shell_quoted(f.output) + " --dtype=" + f.dtype;
  if (f.batch > 0) command += " --batch=" + std::to_string(f.batch);
  if (f.seq > 0) command += " --seq=" + std::to_string(f.seq);
  if (f.no_weights) command += " --no-weights";
  return command + " 2>" + shell_quoted(scripts.file("stderr"));
}

// What the script prints last is one JSON document; anything else means that Python itself failed.
nlohmann::json run_script(const ExportFlags& f) {
  const ScriptFolder scripts("export");
  FILE* const pipe = ::popen(command_of(f, scripts).c_str(), "r");
  if (pipe == nullptr) throw fsdp::EnvironmentError("[export] no process can be started; see shardscope doctor");
  std::string text;
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) text.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  const nlohmann::json answer = nlohmann::json::parse(last_line(text), nullptr, false);
  if (answer.is_object()) return answer;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    throw fsdp::EnvironmentError("[export] there is no " + user_python() +
                                 " here; set SHARDSCOPE_PYTHON to a Python that has torch 2.11");
  if (WIFSIGNALED(status) || WEXITSTATUS(status) > 128)
    throw fsdp::EnvironmentError("[export] " + user_python() +
                                 " was killed, as it is where memory ends; use --no-weights");
  throw fsdp::EnvironmentError("[export] " + user_python() +
                               " ended without an answer: " + last_line(content(scripts.file("stderr"))) +
                               "; set SHARDSCOPE_PYTHON to another Python");
}

// A FILE.py:FUNCTION with the absolute path of the file: what the graph came from.
void check_flags(const ExportFlags& f) {
  if (f.function.empty() == f.config.empty())
    throw fsdp::ConfigError("[export] give FILE.py:FUNCTION, or --hf with a config.json or its folder, and not both");
  if (!f.output.ends_with(".pt2"))
    throw fsdp::ConfigError("[-o] " + f.output + " does not end in .pt2, by which --model knows a file; write " +
                            f.output + ".pt2");
}

std::string summary(const std::string& path, const nlohmann::json& answer) {
  const auto m = exported_model(std::filesystem::absolute(path).lexically_normal().string(), "");
  std::size_t blocks = 0;
  std::string type;
  for (const fsdp::ModuleInfo& module : m->tree.modules) {
    if (!module.is_block) continue;
    ++blocks;
    type = module.type;
  }
  std::string out = path + ": " + m->tree.modules[0].type + ", " + std::to_string(m->tree.numel()) + " parameters in " +
                    std::to_string(m->tree.modules.size()) + " modules, " + std::to_string(m->nodes.size()) +
                    " operators";
  if (blocks > 0) out += ", " + std::to_string(blocks) + " blocks (" + type + ")";
  out += "; batch " + std::to_string(m->batch) + (m->seq > 0 ? ", seq " + std::to_string(m->seq) : "") +
         (m->has_weights ? "" : "; no weights") + "; " + answer.value("seconds", nlohmann::json(0)).dump() + " s\n";
  return out + "look at its units: shardscope plan --model " + shell_quoted(path) +
         (m->batch != 1 ? " --batch " + std::to_string(m->batch) : "") + "\n";
}

void export_model(const ExportFlags& f) {
  check_flags(f);
  const nlohmann::json answer = run_script(f);
  if (answer.contains("error")) {
    const auto text = answer.at("error").get<std::string>();
    if (answer.value("code", 2) == kCannotHere) throw fsdp::EnvironmentError(text);
    throw fsdp::ConfigError(text);
  }
  std::cout << summary(f.output, answer) << std::flush;
}

}  // namespace

void add_export(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "export", "Writes any PyTorch module as a .pt2 that --model takes: planned, predicted and measured here");
  auto f = std::make_shared<ExportFlags>();
  command->add_option("function", f->function,
                      "FILE.py:FUNCTION, which returns (module, inputs) or (module, inputs, loss)");
  command->add_option("--hf", f->config, "a config.json of transformers, or the folder that holds it")
      ->type_name("CONFIG_OR_DIRECTORY");
  command->add_option("-o,--output", f->output, "the file to write; its name ends in .pt2")
      ->type_name("FILE")
      ->required();
  command->add_option("--batch", f->batch, "samples a rank and micro-batch; the graph is made for it (default 1)")
      ->check(CLI::PositiveNumber);
  command->add_option("--seq", f->seq, "length of a sequence (default 64 with --hf)")->check(CLI::PositiveNumber);
  command->add_flag("--no-weights", f->no_weights, "shapes alone: a model of any size on a laptop");
  command->add_option("--dtype", f->dtype, "of parameters and computation, with --hf: fp32, bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  command->footer(
      "FUNCTION may take batch and seq. The Python is SHARDSCOPE_PYTHON, else python3 of PATH; it needs torch 2.11, "
      "and\n"
      "transformers with --hf. The graph is fixed to one batch and one length of a sequence.\n\n"
      "Examples:\n"
      "  shardscope export train.py:make -o mine.pt2 && shardscope plan --model mine.pt2\n"
      "  shardscope export --hf llama-3-70b/ -o llama.pt2 --no-weights --seq 4096\n"
      "  shardscope run --model mine.pt2 --device virtual --world 64 --hardware h100-sxm");
  command->callback([f] { export_model(*f); });
}

}  // namespace harness::cli
