#include "harness/trace/nvtx_ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <array>
#include <cstddef>
#include <cstdlib>

#include "harness/trace/nvtx_names.h"

namespace harness {
namespace {

using fsdp::SpanKind;

constexpr std::size_t kKinds = static_cast<std::size_t>(SpanKind::kStep) + 1;
constexpr std::size_t kPasses = static_cast<std::size_t>(fsdp::Pass::kOptimizer) + 1;
constexpr std::size_t kPerUnit = kKinds * kPasses;

std::size_t place_of(SpanKind kind, fsdp::Pass pass) {
  return static_cast<std::size_t>(kind) * kPasses + static_cast<std::size_t>(pass);
}

nvtxEventAttributes_t attributes(nvtxStringHandle_t name) {
  nvtxEventAttributes_t a{};
  a.version = NVTX_VERSION;
  a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  a.message.registered = name;
  return a;
}

}  // namespace

class NvtxRanges::Impl {
 public:
  explicit Impl(const std::vector<std::string>& unit_names) : domain_(nvtxDomainCreateA(kNvtxDomain)) {
    names_.resize((unit_names.size() + 1) * kPerUnit);  // the first row: work of no unit
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      const RangeCategory c = range_category(static_cast<SpanKind>(kind));
      categories_[kind] = c.id;
      nvtxDomainNameCategoryA(domain_, c.id, c.name);
      for (std::size_t row = 0; row <= unit_names.size(); ++row) register_row(static_cast<SpanKind>(kind), row);
    }
    measured_name_ = nvtxDomainRegisterStringA(domain_, kMeasuredRange);
    for (std::size_t unit = 0; unit < unit_names.size(); ++unit) {
      const std::string text = "unit" + std::to_string(unit) + " = " + unit_names[unit];
      const nvtxEventAttributes_t a = attributes(nvtxDomainRegisterStringA(domain_, text.c_str()));
      nvtxDomainMarkEx(domain_, &a);
    }
  }
  ~Impl() { end_measured(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void push(const fsdp::WorkTag& tag, int step) noexcept {
    const std::size_t row = static_cast<std::size_t>(tag.unit + 1) * kPerUnit;
    const std::size_t name = row < names_.size() ? row + place_of(tag.kind, tag.pass) : place_of(tag.kind, tag.pass);
    nvtxEventAttributes_t a = attributes(names_[name]);
    a.category = categories_[static_cast<std::size_t>(tag.kind)];
    a.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    a.payload.ullValue = static_cast<std::uint64_t>(tag.kind == SpanKind::kStep ? step : tag.bytes);
    nvtxDomainRangePushEx(domain_, &a);
  }
  void pop() noexcept { nvtxDomainRangePop(domain_); }

  void begin_measured() noexcept {
    if (open_) return;
    const nvtxEventAttributes_t a = attributes(measured_name_);
    measured_ = nvtxDomainRangeStartEx(domain_, &a);
    open_ = true;
  }
  void end_measured() noexcept {
    if (open_) nvtxDomainRangeEnd(domain_, measured_);
    open_ = false;
  }

 private:
  void register_row(SpanKind kind, std::size_t row) {
    for (std::size_t pass = 0; pass < kPasses; ++pass) {
      fsdp::WorkTag tag;
      tag.kind = kind;
      tag.pass = static_cast<fsdp::Pass>(pass);
      tag.unit = static_cast<fsdp::UnitId>(row) - 1;
      names_[row * kPerUnit + place_of(kind, tag.pass)] = nvtxDomainRegisterStringA(domain_, range_name(tag).c_str());
    }
  }

  nvtxDomainHandle_t domain_;  // for the process's life: a tool may still name it after us
  std::vector<nvtxStringHandle_t> names_;
  std::array<std::uint32_t, kKinds> categories_{};
  nvtxStringHandle_t measured_name_ = nullptr;
  nvtxRangeId_t measured_ = 0;
  bool open_ = false;
};

NvtxRanges::NvtxRanges(const std::vector<std::string>& unit_names) : impl_(std::make_unique<Impl>(unit_names)) {}
NvtxRanges::~NvtxRanges() = default;
void NvtxRanges::push(const fsdp::WorkTag& tag, int step) noexcept { impl_->push(tag, step); }
void NvtxRanges::pop() noexcept { impl_->pop(); }
void NvtxRanges::begin_measured() noexcept { impl_->begin_measured(); }
void NvtxRanges::end_measured() noexcept { impl_->end_measured(); }

std::unique_ptr<NvtxRanges> wanted_nvtx_ranges(const std::vector<std::string>& unit_names) {
  if (!ranges_wanted([](const char* name) -> const char* { return std::getenv(name); })) return nullptr;
  return std::make_unique<NvtxRanges>(unit_names);
}

}  // namespace harness
