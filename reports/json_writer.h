// JsonWriter: JSON that may stand inside a <script> element of a page. No '<', '>' or '&' is ever written as itself,
// bytes that are not UTF-8 and characters that turn the direction of text become U+FFFD, long strings are cut with
// their length told.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace reports {

class JsonWriter {
 public:
  static constexpr std::size_t kStringLimit = 600;  // bytes of one string, unless the call says otherwise

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);  // REQUIRES: inside an object

  JsonWriter& value(std::int64_t v);
  JsonWriter& value(int v) { return value(static_cast<std::int64_t>(v)); }
  JsonWriter& value(std::size_t v) { return value(static_cast<std::int64_t>(v)); }
  JsonWriter& value(double v);  // null when it is not finite
  JsonWriter& value(bool v);
  JsonWriter& value(std::string_view v, std::size_t limit = kStringLimit);
  JsonWriter& value(const std::string& v) { return value(std::string_view(v)); }
  JsonWriter& value(const char* v) { return value(std::string_view(v)); }
  JsonWriter& null();
  JsonWriter& raw(std::string_view json);  // REQUIRES: one value that a JsonWriter wrote
  template <typename T>
  JsonWriter& value(const std::optional<T>& v) {
    return v ? value(*v) : null();
  }
  template <typename T>
  JsonWriter& field(std::string_view name, const T& v) {
    return key(name).value(v);
  }

  const std::string& text() const { return out_; }

 private:
  JsonWriter& open(char c);
  JsonWriter& close(char c);
  void separate();

  std::string out_;
  bool comma_ = false;
};

// The string as JsonWriter writes it, quotes included.
std::string json_string(std::string_view text, std::size_t limit = JsonWriter::kStringLimit);

}  // namespace reports
