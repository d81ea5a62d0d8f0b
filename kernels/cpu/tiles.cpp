#include "kernels/cpu/tiles.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#define RINGTRAIN_TILES 1
#endif

namespace ringtrain::cpu::tiles {

namespace {

/// c[side, side] += A B, as one instruction adds them. c's rows are `block` apart, as B's; A is a tile.
void add_emulated(const Tiled* a, const Tiled* b, float* c) {
  constexpr std::int64_t W = lanes<float>;
  const auto upper = [](Words x) { return flushed(std::bit_cast<Vector<float>>(x & 0xffff0000U)); };
  const auto lower = [](Words x) { return flushed(std::bit_cast<Vector<float>>(x << 16)); };
  for (std::int64_t r = 0; r < side; ++r) {
    for (std::int64_t j = 0; j < side; j += W) {
      Vector<float> uppers{}, lowers{};
      for (std::int64_t p = 0; p < side; ++p) {
        Words pairs;
        std::memcpy(&pairs, b + p * block + j, sizeof(pairs));
        const Words x = Words{} + a[r * side + p].bits;
        uppers = flushed(fma(upper(x), upper(pairs), uppers));
        lowers = flushed(fma(lower(x), lower(pairs), lowers));
      }
      float* const to = c + r * block + j;
      store(to, flushed(flushed(load(to)) + flushed(uppers + lowers)));
    }
  }
}

#if defined(RINGTRAIN_TILES)

/// What LDTILECFG reads: palette 1, and for each of eight tiles 16 rows of 64 bytes.
struct alignas(64) Configuration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(Configuration) == 64);

template <int tile>
void set_zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}
/// Rows are `stride` bytes apart.
template <int tile>
void load_tile(const void* from, std::int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
void store_tile(void* to, std::int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
}
template <int sum, int a, int b>
void add() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(a), "i"(b));
}

template <bool second>
void multiply_by_tiles(std::int64_t depth, const Tiled* a, const Tiled* b, float* sums) {
  constexpr std::int64_t a_row = side * sizeof(Tiled), b_row = block * sizeof(Tiled), c_row = block * sizeof(float);
  set_zero<0>();
  set_zero<1>();
  if constexpr (second) {
    set_zero<2>();
    set_zero<3>();
  }
  for (std::int64_t k = 0; k < depth; ++k, a += elements, b += side * block) {
    load_tile<4>(a, a_row);
    load_tile<6>(b, b_row);
    load_tile<7>(b + side, b_row);
    if constexpr (second) load_tile<5>(a + depth * elements, a_row);
    add<0, 4, 6>();
    add<1, 4, 7>();
    if constexpr (second) {
      add<2, 5, 6>();
      add<3, 5, 7>();
    }
  }
  store_tile<0>(sums, c_row);
  store_tile<1>(sums + side, c_row);
  if constexpr (second) {
    store_tile<2>(sums + side * block, c_row);
    store_tile<3>(sums + side * block + side, c_row);
  }
}

/// Whether the processor has AMX-TILE and AMX-BF16, the system keeps such registers, and lets this process have them.
bool is_let() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned xgetbv_is_there = 1U << 27, amx_bf16 = 1U << 22, amx_tile = 1U << 24;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & xgetbv_is_there) == 0) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & amx_bf16) == 0 || (d & amx_tile) == 0) return false;
  constexpr unsigned tile_states = 3U << 17;
  asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  if ((a & tile_states) != tile_states) return false;
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, for this process
  return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

/// Whether the instructions give what multiply_emulated() gives.
bool give_their_bits() {
  constexpr std::int64_t depth = 2;
  alignas(64) Tiled a[2 * depth * elements], b[depth * side * block];
  alignas(64) float found[block * block], expected[block * block];
  std::uint32_t bits = 1;
  const auto draw = [&](Tiled& x) {  // two numbers between 1/2 and 2 in size
    bits = bits * 1664525 + 1013904223;
    x.bits = (bits & 0x80ff80ffU) | 0x3f003f00U;
  };
  std::for_each(std::begin(a), std::end(a), draw);
  std::for_each(std::begin(b), std::end(b), draw);
  {
    const Configured configured(true);
    multiply(depth, true, a, b, found);
  }
  multiply_emulated(depth, true, a, b, expected);
  return std::memcmp(found, expected, sizeof(found)) == 0;
}

#endif

}  // namespace

void multiply_emulated(std::int64_t depth, bool second, const Tiled* a, const Tiled* b, float* sums) {
  for (std::int64_t row = 0; row < (second ? 2 : 1); ++row) {
    float* const c = sums + row * side * block;
    std::fill_n(c, side * block, 0.0F);
    for (std::int64_t k = 0; k < depth; ++k) {
      const Tiled* const tile = a + (row * depth + k) * elements;
      for (std::int64_t column = 0; column < block; column += side) {
        add_emulated(tile, b + k * side * block + column, c + column);
      }
    }
  }
}

#if defined(RINGTRAIN_TILES)

bool available() {
  static const bool is_available = is_let() && give_their_bits();
  return is_available;
}

void multiply(std::int64_t depth, bool second, const Tiled* a, const Tiled* b, float* sums) {
  if (second) return multiply_by_tiles<true>(depth, a, b, sums);
  multiply_by_tiles<false>(depth, a, b, sums);
}

Configured::Configured(bool wanted) : wanted_(wanted) {
  if (!wanted_) return;
  static constexpr Configuration configuration;
  asm volatile("ldtilecfg %0" ::"m"(configuration));
}
Configured::~Configured() {
  if (wanted_) asm volatile("tilerelease" ::: "memory");
}

#else

bool available() {
  return false;
}
void multiply(std::int64_t depth, bool second, const Tiled* a, const Tiled* b, float* sums) {
  multiply_emulated(depth, second, a, b, sums);
}
Configured::Configured(bool wanted) : wanted_(wanted) {}
Configured::~Configured() = default;

#endif

}  // namespace ringtrain::cpu::tiles
