// Visitors over the columns of columns.h: definition, binding and reading of one row.
#pragma once
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fsdp/core/errors.h"
#include "harness/store/checks.h"
#include "harness/store/columns.h"
#include "harness/store/sqlite.h"

namespace harness::store_detail {

template <class T>
constexpr const char* sql_type() {
  if constexpr (std::is_floating_point_v<T>) return "REAL";
  return std::is_integral_v<T> ? "INTEGER" : "TEXT";
}

struct ColumnDefinition {
  std::string name;
  std::string definition;  // "INTEGER NOT NULL"
};

struct Describe {
  std::vector<ColumnDefinition>& out;
  template <class T>
  void operator()(const std::string& name, T&) {
    out.push_back({name, std::string(sql_type<T>()) + " NOT NULL"});
  }
  template <class T>
  void operator()(const std::string& name, std::optional<T>&) {
    out.push_back({name, sql_type<T>()});
  }
  template <class E>
  void operator()(const std::string& name, Named<E>) {
    out.push_back({name, "TEXT NOT NULL"});
  }
};

struct Bind {
  sqlite::Statement& s;
  template <class T>
  void operator()(const std::string&, T& v) {
    one(v);
  }
  template <class T>
  void operator()(const std::string&, std::optional<T>& v) {
    v ? one(*v) : s.bind_null();
  }
  template <class E>
  void operator()(const std::string&, Named<E> v) {
    s.bind(std::string(name_of(v.value)));
  }

 private:
  template <class T>
  void one(const T& v) {
    if constexpr (std::is_integral_v<T>) {
      s.bind(static_cast<std::int64_t>(v));
    } else {
      s.bind(v);
    }
  }
};

// Reads a row; a value of another type than its column's, or beyond the field's range, is damage.
struct Read {
  const sqlite::Statement& s;
  int column;
  template <class T>
  void operator()(const std::string& name, T& v) {
    v = one<T>(name);
    ++column;
  }
  template <class T>
  void operator()(const std::string& name, std::optional<T>& v) {
    v = s.is_null(column) ? std::nullopt : std::optional<T>(one<T>(name));
    ++column;
  }
  template <class E>
  void operator()(const std::string& name, Named<E> v) {
    const std::string text = s.text(column++);
    for (int i = 0; i <= static_cast<int>(v.last); ++i) {
      v.value = static_cast<E>(i);
      if (text == name_of(v.value)) return;
    }
    throw fsdp::ConfigError("[" + s.path() + "] column " + name + " holds \"" + text +
                            "\", which this version does not know; use the version that wrote it");
  }

 private:
  template <class T>
  T one(const std::string& name) const {
    const int type = s.type(column);
    if constexpr (std::is_same_v<T, std::string>) {
      if (type != SQLITE_TEXT) wrong(name);
      return s.text(column);
    } else if constexpr (std::is_floating_point_v<T>) {
      const bool nan = type == SQLITE_TEXT && s.text(column) == "nan";
      if (type != SQLITE_FLOAT && type != SQLITE_INTEGER && !nan) wrong(name);
      return s.real(column);
    } else if constexpr (std::is_same_v<T, bool>) {
      if (type != SQLITE_INTEGER || s.integer(column) < 0 || s.integer(column) > 1) wrong(name);
      return s.integer(column) == 1;
    } else {
      if (type != SQLITE_INTEGER || !std::in_range<T>(s.integer(column))) wrong(name);
      return static_cast<T>(s.integer(column));
    }
  }
  [[noreturn]] void wrong(const std::string& name) const {
    damaged(s.path(), "column " + name + " holds what no sweep writes there");
  }
};

template <class T>
std::vector<ColumnDefinition> columns_of() {
  std::vector<ColumnDefinition> out;
  T row{};
  columns(row, Describe{out});
  return out;
}

template <class T>
std::string column_list() {
  std::string out;
  for (const ColumnDefinition& c : columns_of<T>()) out += (out.empty() ? "" : ", ") + c.name;
  return out;
}

// "?, ?, ?" for the leading columns and those of T.
template <class T>
std::string placeholders(std::size_t leading) {
  std::string out = "?";
  for (std::size_t i = 1; i < leading + columns_of<T>().size(); ++i) out += ", ?";
  return out;
}

// The visitors take mutable references so that one list serves reading and writing; Bind only reads.
template <class T>
void bind_row(sqlite::Statement& s, const T& row) {
  columns(const_cast<T&>(row), Bind{s});
}

}  // namespace harness::store_detail
