#include "data/vocabulary.h"

namespace ringtrain {

Vocabulary::Vocabulary(std::int64_t size) : size_(size) {
  ensure(size >= 1 && size <= INT32_MAX, "a vocabulary has a token, and int32 numbers them");
}

std::string Vocabulary::refusal(std::int64_t id, std::string_view where) const {
  return fmt::format("{}: {} is not a token of this model, whose vocabulary has the ids 0 to {}", where, id, size_ - 1);
}

std::int32_t Vocabulary::token(std::int64_t id, ExitCode code, std::string_view where) const {
  if (!has(id)) fail(code, "{}", refusal(id, where));
  return static_cast<std::int32_t>(id);
}

}  // namespace ringtrain
