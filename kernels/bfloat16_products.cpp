#include "kernels/bfloat16_products.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string_view>

#include "framework/error.h"
#include "kernels/cpu/pairs.h"

namespace ringtrain {

namespace {

using cpu::Vector;

/// Returns the seconds, the shortest of a few tries, for adding this many products of P to each of several registers.
template <class P>
double seconds_of_products(std::int64_t count) {
  using Clock = std::chrono::steady_clock;
  constexpr int sums = 12;  // more than are needed to hide the multipliers' latency
  double shortest = 1e300;
  for (int attempt = 0; attempt < 5; ++attempt) {
    Vector<float> sum[sums] = {};
    Vector<P> x{}, y{};
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < count; ++i) {
      cpu::unroll<sums>([&](auto j) {
        sum[j] = cpu::add_product<P>(sum[j], x, y);
#if defined(__x86_64__)
        asm volatile("" : "+v"(sum[j]));  // forces each product to be computed
#else
        asm volatile("" : "+w"(sum[j]));
#endif
      });
    }
    shortest = std::min(shortest, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return shortest;
}

BFloat16Products chosen() {
  if (const char* const name = std::getenv("RINGTRAIN_BFLOAT16")) {
    if (std::string_view(name) == "widened") return BFloat16Products::widened;
    if (std::string_view(name) == "pairs") return BFloat16Products::pairs;
    fail(ExitCode::usage, "RINGTRAIN_BFLOAT16 is {}, but must be one of widened, pairs", name);
  }
  if (!cpu::dot_is_an_instruction) return BFloat16Products::widened;
  // A pair is two products. On some processors the instruction runs at half the rate of the multiply-add or less.
  constexpr std::int64_t count = 2000;
  return seconds_of_products<cpu::Pair>(count) < 2 * 0.9 * seconds_of_products<float>(count)
             ? BFloat16Products::pairs
             : BFloat16Products::widened;
}

std::atomic<BFloat16Products>& in_use() {
  static std::atomic<BFloat16Products> products{chosen()};
  return products;
}

}  // namespace

BFloat16Products bfloat16_products() {
  return in_use().load(std::memory_order_relaxed);
}

void use_bfloat16_products(BFloat16Products products) {
  in_use().store(products, std::memory_order_relaxed);
}

const char* bfloat16_products_text() {
  if (bfloat16_products() == BFloat16Products::widened) return "float32";
  return cpu::dot_is_an_instruction ? "AVX512-BF16" : "AVX512-BF16 emulated";
}

}  // namespace ringtrain
