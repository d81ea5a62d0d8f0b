// Enumerations whose values have names in configs, messages, and files: one table each, used by readers and writers.
#pragma once

#include <array>
#include <cstddef>

#include "framework/error.h"

namespace ringtrain {

template <class Value>
struct Named {
  Value value;
  const char* name;
};
template <class Value>
Named(Value, const char*) -> Named<Value>;  // clang 16 does not deduce this for aggregates

/// Returns the values of a table, in its order.
template <class Value, std::size_t n>
constexpr std::array<Value, n> values_of(const std::array<Named<Value>, n>& table) {
  std::array<Value, n> values{};
  for (std::size_t i = 0; i < n; ++i) values[i] = table[i].value;
  return values;
}

/// Returns the name of a value; throws an internal Error if the table has none.
template <class Value, std::size_t n>
const char* name_in(const std::array<Named<Value>, n>& table, Value value) {
  for (const Named<Value>& entry : table) {
    if (entry.value == value) return entry.name;
  }
  fail(ExitCode::internal, "internal error: an enum value has no name");
}

}  // namespace ringtrain
