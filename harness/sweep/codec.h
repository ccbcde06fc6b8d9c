// Codecs: between a user's text and a typed value of a setting. parse() throws fsdp::ConfigError with a sentence that
// says what is wrong and what would be right; the table puts the setting's name in front. Equal values print equal.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/sweep/quantities.h"
#include "harness/sweep/settings.h"

namespace harness::codec {

template <class T>
struct Codec {
  std::string values;  // for --help
  std::function<T(const std::string& text, FileTexts& files)> parse;
  std::function<std::string(const T& value)> print;
  std::string (*file)(const std::string& text) = nullptr;  // as SettingRow::file
};

[[noreturn]] void refuse(const std::string& text, const std::string& right);
// The place of `text` among `words`, or an error that lists them.
std::size_t place_of(const std::string& text, const std::vector<std::string>& words);

// An enumeration by its names, in its order.
template <class E>
Codec<E> choice(std::vector<std::string> words) {
  return {fmt::format("{}", fmt::join(words, ", ")),
          [words](const std::string& text, FileTexts&) { return static_cast<E>(place_of(text, words)); },
          [words](const E& value) { return words.at(static_cast<std::size_t>(value)); }};
}

// One more word in front of what another codec takes, for a value that means "none" or "auto".
template <class T>
Codec<T> or_word(const std::string& word, T value, Codec<T> other) {
  return {word + ", " + other.values,
          [=](const std::string& text, FileTexts& files) { return text == word ? value : other.parse(text, files); },
          [=](const T& v) { return v == value ? word : other.print(v); }, other.file};
}
template <class T>
Codec<std::optional<T>> or_nothing(const std::string& word, Codec<T> other) {
  return {word + ", " + other.values,
          [=](const std::string& text, FileTexts& files) {
            return text == word ? std::nullopt : std::optional<T>(other.parse(text, files));
          },
          [=](const std::optional<T>& v) { return v ? other.print(*v) : word; }};
}

// Whole numbers from `low` to 2^31-1; `also` is what else the setting takes, for the error.
Codec<int> whole(int low, const std::string& also = "");
Codec<std::uint64_t> seed();
Codec<fsdp::Bytes> size(const std::string& right);  // above 0
Codec<fsdp::Nanos> duration();                      // above 0
Codec<double> norm();                               // above 0
Codec<std::string> word();                          // any text that is not empty
Codec<NamedModel> model();
Codec<Overrides> overrides();
Codec<WrapChoice> wrap();
Codec<BackwardPrefetchChoice> backward_prefetch();
Codec<fsdp::GateLimit> gate();
Codec<std::shared_ptr<const FileText>> prefetch_order();
Codec<CtaLimits> nccl_ctas();
Codec<fsdp::Wire> wire();
Codec<HardwareChoice> hardware();
Codec<ArrivalSkew> arrival_skew();

}  // namespace harness::codec
