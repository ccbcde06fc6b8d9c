#include "fsdp/module/sharded_state.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "fsdp/core/errors.h"
#include "fsdp/module/safetensors.h"
#include "fsdp/module/torch.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;
constexpr const char* kFormat = "shardscope-state-1";

std::string file_name(int rank, int world) {
  char text[64];
  std::snprintf(text, sizeof text, "rank-%05d-of-%05d.safetensors", rank, world);
  return text;
}

// Runs `work`; afterwards all ranks know whether it went well on all of them.
void agree(Collectives& collectives, const std::function<void()>& work) {
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  const auto failed = collectives.exchange(failure ? 1 : 0);
  if (failure) std::rethrow_exception(failure);
  for (std::size_t r = 0; r < failed.size(); ++r)
    if (failed[r] != 0)
      throw EnvironmentError("[state] rank " + std::to_string(r) + " has failed to save or load; see its own message");
}

// One parameter's part on this rank, and where its numbers lie.
struct Part {
  const Parameter* parameter = nullptr;
  Count begin = 0, end = 0;
  float *value = nullptr, *m = nullptr, *v = nullptr;
};

std::vector<Part> parts_of(const ShardedModel& model, const ShardedOptimizer& optimizer) {
  std::vector<Part> parts;
  for (UnitId u = 0; u < model.unit_count(); ++u) {
    const ShardedModel::Shard shard = model.shard(u);
    const ShardedOptimizer::State& state = optimizer.state(u);
    for (std::size_t i = 0; i < model.parameter_count(u); ++i) {
      const ShardedModel::ParameterShard s = model.parameter_shard(u, i);
      if (s.range.begin == s.range.end) continue;
      Part p{s.parameter, s.range.begin, s.range.end, shard.parameters.mutable_data_ptr<float>() + s.range.at};
      if (state.m.defined() && s.parameter->trainable) {
        p.m = state.m.mutable_data_ptr<float>() + s.gradient_at;
        p.v = state.v.mutable_data_ptr<float>() + s.gradient_at;
      }
      parts.push_back(p);
    }
  }
  return parts;
}

void put_on_disk(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

void write_parts(const ShardedModel& model, const ShardedOptimizer& optimizer, Collectives& collectives,
                 const std::string& path) {
  std::vector<FloatArray> arrays;
  std::map<std::string, std::string> metadata = {{"format", kFormat},
                                                 {"steps", std::to_string(optimizer.steps())},
                                                 {"rank", std::to_string(collectives.rank())},
                                                 {"world", std::to_string(collectives.world())}};
  std::map<std::string, bool> mine;
  for (UnitId u = 0; u < model.unit_count(); ++u)
    for (std::size_t i = 0; i < model.parameter_count(u); ++i)
      mine[model.parameter_shard(u, i).parameter->name] = model.shard(u).counts;
  for (const Part& p : parts_of(model, optimizer)) {
    const std::string& name = p.parameter->name;
    if (!mine.at(name)) continue;
    const Count n = p.end - p.begin;
    arrays.push_back({name + "/value", p.value, n});
    if (p.m != nullptr) arrays.push_back({name + "/m", p.m, n});
    if (p.v != nullptr) arrays.push_back({name + "/v", p.v, n});
    metadata[name] = nlohmann::json{{"shape", p.parameter->shape}, {"begin", p.begin}, {"end", p.end}}.dump();
  }
  write_safetensors(path, arrays, metadata);
}

void replace_directory(const std::string& fresh, const std::string& directory) {
  put_on_disk(fresh);
  if (renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, directory.c_str(), RENAME_NOREPLACE) != 0) {
    const bool replaced =
        errno == EEXIST && renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, directory.c_str(), RENAME_EXCHANGE) == 0;
    if (!replaced)
      throw EnvironmentError("[state] " + directory + " cannot take its place: " + std::strerror(errno) +
                             "; use a directory on a file system that can exchange directories");
  }
  const std::string parent = fs::path(directory).parent_path().string();
  put_on_disk(parent.empty() ? "." : parent);
  fs::remove_all(fresh);  // the previous state, if there was one
}

// The files of a state, and who holds what.
class State {
 public:
  explicit State(const std::string& directory) : directory_(directory) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
      if (entry.path().extension() != ".safetensors") continue;
      files_.push_back(std::make_unique<SafetensorsReader>(entry.path().string()));
      index(*files_.back(), entry.path().string());
    }
    if (error || files_.empty())
      throw EnvironmentError("[state] " + directory + " holds no state; save one there first");
    if (files_.size() != world_)
      throw ConfigError("[state] " + directory + " holds " + std::to_string(files_.size()) + " of " +
                        std::to_string(world_) + " files; use a complete copy");
  }

  std::int64_t steps() const { return steps_; }

  void fill(const Part& part) const {
    const std::string& name = part.parameter->name;
    const auto found = pieces_.find(name);
    if (found == pieces_.end()) refuse("has no parameter " + name);
    Count filled = 0;
    for (const Piece& piece : found->second) {
      if (piece.shape != part.parameter->shape) refuse("holds " + name + " in another shape");
      const Count begin = std::max(part.begin, piece.begin), end = std::min(part.end, piece.end);
      if (begin >= end) continue;
      filled += end - begin;
      for (const auto& [suffix, out] : {std::pair{"/value", part.value}, {"/m", part.m}, {"/v", part.v}}) {
        if (out == nullptr) continue;
        if (!piece.file->has(name + suffix)) refuse("has no " + name + suffix + " (another optimizer?)");
        piece.file->read(name + suffix, begin - piece.begin, end - begin, out + (begin - part.begin));
      }
    }
    if (filled != part.end - part.begin) refuse("holds " + name + " in part only");
  }

 private:
  struct Piece {
    const SafetensorsReader* file;
    Count begin, end;
    std::vector<Count> shape;
  };
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError("[state] " + directory_ + " " + what + "; use a state of this model");
  }
  void index(const SafetensorsReader& file, const std::string& path) {
    const auto& metadata = file.metadata();
    const auto format = metadata.find("format");
    if (format == metadata.end() || format->second != kFormat)
      throw ConfigError("[state] " + path + " is not of the form " + kFormat +
                        "; use a state that shardscope has saved");
    steps_ = std::stoll(metadata.at("steps"));
    world_ = std::stoull(metadata.at("world"));
    for (const auto& [name, text] : metadata) {
      if (!file.has(name + "/value")) continue;
      const auto place = nlohmann::json::parse(text);
      pieces_[name].push_back({&file, place.at("begin").get<Count>(), place.at("end").get<Count>(),
                               place.at("shape").get<std::vector<Count>>()});
    }
  }

  const std::string directory_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::map<std::string, std::vector<Piece>> pieces_;
  std::int64_t steps_ = 0;
  std::size_t world_ = 0;
};

}  // namespace

void save_state(const ShardedModel& model, const ShardedOptimizer& optimizer, Collectives& collectives,
                const std::string& directory) {
  const std::string fresh = directory + ".tmp";
  agree(collectives, [&] {
    if (collectives.rank() != 0) return;
    fs::remove_all(fresh);  // left by a crash
    fs::create_directories(fresh);
  });
  agree(collectives, [&] {
    write_parts(model, optimizer, collectives, fresh + "/" + file_name(collectives.rank(), collectives.world()));
  });
  agree(collectives, [&] {
    if (collectives.rank() == 0) replace_directory(fresh, directory);
  });
}

void load_state(ShardedModel& model, ShardedOptimizer& optimizer, Collectives& collectives,
                const std::string& directory) {
  agree(collectives, [&] {
    const State state(directory);
    for (const Part& part : parts_of(model, optimizer)) state.fill(part);
    optimizer.set_steps(state.steps());
  });
}

}  // namespace fsdp
