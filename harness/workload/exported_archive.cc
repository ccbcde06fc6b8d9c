#include "harness/workload/exported_archive.h"

#include <zip.h>

#include <algorithm>

#include "fsdp/core/errors.h"

namespace harness {
namespace {

constexpr const char* kModel = "models/model.json";
constexpr const char* kRemedy = "; write it with shardscope export";

struct CloseFile {
  void operator()(zip_file_t* f) const { zip_fclose(f); }
};
using File = std::unique_ptr<zip_file_t, CloseFile>;

}  // namespace

struct ExportedArchive::Zip {
  explicit Zip(zip_t* z) : handle(z) {}
  ~Zip() { zip_discard(handle); }
  Zip(const Zip&) = delete;
  Zip& operator=(const Zip&) = delete;
  zip_t* handle;
};

ExportedArchive::ExportedArchive(const std::string& path) : path_(path) {
  int error = 0;
  zip_t* const z = zip_open(path.c_str(), ZIP_RDONLY, &error);
  if (z == nullptr) {
    const bool absent = error == ZIP_ER_NOENT || error == ZIP_ER_OPEN || error == ZIP_ER_READ;
    throw fsdp::ConfigError("[model] " + path +
                            (absent ? " cannot be read; give the path of a .pt2 that shardscope export wrote"
                                    : std::string(" is not a .pt2: it is no zip archive, or was cut off") + kRemedy));
  }
  zip_ = std::make_unique<Zip>(z);
  const zip_int64_t count = zip_get_num_entries(z, 0);
  std::string folder;
  for (zip_int64_t i = 0; i < count && folder.empty(); ++i) {
    const char* const name = zip_get_name(z, static_cast<zip_uint64_t>(i), 0);
    const std::string text = name ? name : "", end = std::string("/") + kModel;
    if (text.size() > end.size() && text.ends_with(end)) folder = text.substr(0, text.size() - end.size() + 1);
  }
  if (folder.empty())
    throw fsdp::ConfigError("[model] " + path + " holds no exported model (" + kModel + ")" + kRemedy);
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t s;
    zip_stat_init(&s);
    if (zip_stat_index(z, static_cast<zip_uint64_t>(i), 0, &s) != 0 || (s.valid & ZIP_STAT_SIZE) == 0)
      damaged("its list");
    const std::string name = s.name;
    if (name.starts_with(folder))
      members_[name.substr(folder.size())] = {s.index, s.size, s.crc, s.comp_method == ZIP_CM_STORE};
  }
}
ExportedArchive::~ExportedArchive() = default;

void ExportedArchive::damaged(const std::string& what) const {
  throw fsdp::ConfigError("[model] " + path_ + ": " + what + " is damaged or cut off" + kRemedy);
}

const ExportedArchive::Member& ExportedArchive::member(const std::string& name) const {
  const auto found = members_.find(name);
  if (found == members_.end()) throw fsdp::ConfigError("[model] " + path_ + " has no member " + name + kRemedy);
  return found->second;
}

std::uint64_t ExportedArchive::size(const std::string& name) const { return member(name).size; }

std::string ExportedArchive::text(const std::string& name, std::uint64_t most) const {
  const Member& m = member(name);
  if (m.size > most)
    throw fsdp::ConfigError("[model] " + path_ + ": " + name + " is longer than " + std::to_string(most) + " bytes" +
                            kRemedy);
  const File file(zip_fopen_index(zip_->handle, m.index, 0));
  std::string out(static_cast<std::size_t>(m.size), '\0');
  // One byte more: the end, where the checksum is compared.
  char past = 0;
  if (!file || zip_fread(file.get(), out.data(), m.size) != static_cast<zip_int64_t>(m.size) ||
      zip_fread(file.get(), &past, 1) != 0)
    damaged(name);
  return out;
}

void ExportedArchive::read(const std::string& name, std::uint64_t at, std::uint64_t count, void* to) const {
  const Member& m = member(name);
  if (!m.stored || at > m.size || count > m.size - at) damaged(name);
  const File file(zip_fopen_index(zip_->handle, m.index, 0));
  if (!file || (at > 0 && zip_fseek(file.get(), static_cast<zip_int64_t>(at), SEEK_SET) != 0)) damaged(name);
  auto* out = static_cast<char*>(to);
  while (count > 0) {
    const zip_int64_t n = zip_fread(file.get(), out, std::min<std::uint64_t>(count, std::uint64_t{1} << 30));
    if (n <= 0) damaged(name);
    out += n, count -= static_cast<std::uint64_t>(n);
  }
}

std::string ExportedArchive::fingerprint() const {
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  const auto add = [&](const std::string& text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  };
  for (const auto& [name, m] : members_) {
    if (name.starts_with("models/") || name.starts_with("data/weights/") || name.starts_with("data/constants/") ||
        name.starts_with("extra/"))
      add(name + " " + std::to_string(m.size) + " " + std::to_string(m.checksum) + "\n");
  }
  std::string out;
  for (int shift = 60; shift >= 0; shift -= 4) out += "0123456789abcdef"[hash >> shift & 15];
  return out;
}

}  // namespace harness
