// The ids of a vocabulary, and the only way in which an external id becomes a token: files, flags, and tokenizers give
// whole numbers, and only Vocabulary converts them to the int32 that indexes tables. No other code casts an id.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "framework/error.h"

namespace ringtrain {

class Vocabulary {
 public:
  /// size: the rows of the token table, which int32 can number.
  explicit Vocabulary(std::int64_t size);

  /// Returns whether an id is a token.
  bool has(std::int64_t id) const { return id >= 0 && id < size_; }
  /// Returns a message about an id that is not a token. where: where it was given: a flag, or a file and its key.
  std::string refusal(std::int64_t id, std::string_view where) const;
  /// Returns the id as a token. Throws Error(code) with the message of refusal().
  std::int32_t token(std::int64_t id, ExitCode code, std::string_view where) const;

 private:
  std::int64_t size_;
};

}  // namespace ringtrain
