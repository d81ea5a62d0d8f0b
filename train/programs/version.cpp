#include "train/programs/version.h"

#include <fmt/format.h>

#include <ringtrain_build_options.h>  // made by CMake: cmake/build_options.h.in
#include <ringtrain_commit.h>         // made at every build: cmake/commit.cmake

#include "kernels/bfloat16_products.h"

namespace ringtrain {

std::string version_text() {
  const auto or_else = [](const std::string& text, const std::string& other) { return text.empty() ? other : text; };
  const auto on_off = [](bool on) { return on ? "on" : "off"; };
  return fmt::format(
      "ringtrain {} (commit {})\n{}, {}, -march={}, bfloat16 by {}, CUDA {}, NCCL {}, MPI {}, sanitizers {}",
      RINGTRAIN_VERSION, RINGTRAIN_COMMIT, RINGTRAIN_COMPILER, RINGTRAIN_BUILD_TYPE,
      or_else(RINGTRAIN_ARCH, "the compiler's default"), bfloat16_products_text(), RINGTRAIN_CUDA_KIND,
      on_off(RINGTRAIN_NCCL), on_off(RINGTRAIN_MPI), or_else(RINGTRAIN_SANITIZERS, "off"));
}

}  // namespace ringtrain
