#include "framework/config/config.h"

#include "framework/error.h"

namespace ringtrain {

const char* name_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::llama:
      return "llama";
    case Architecture::mistral:
      return "mistral";
    case Architecture::gpt2:
      return "gpt2";
    case Architecture::qwen2:
      return "qwen2";
    case Architecture::qwen3:
      return "qwen3";
  }
  fail(ExitCode::internal, "an architecture without a name");
}

const char* name_of(RopeType type) {
  switch (type) {
    case RopeType::none:
      return "none";
    case RopeType::linear:
      return "linear";
    case RopeType::ntk:
      return "ntk";
    case RopeType::yarn:
      return "yarn";
    case RopeType::llama3:
      return "llama3";
    case RopeType::longrope:
      return "longrope";
  }
  fail(ExitCode::internal, "a rope type without a name");
}

const char* name_of(Recompute policy) {
  switch (policy) {
    case Recompute::none:
      return "none";
    case Recompute::keep_attention:
      return "keep_attention";
    case Recompute::full:
      return "full";
  }
  fail(ExitCode::internal, "a recompute policy without a name");
}

}  // namespace ringtrain
