// What CUDA C++ has without a header in device code: qualifiers, the indices of a thread, barriers, the warp's
// collectives, atomics and the math functions that the C library lacks.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>
#include <utility>

#include "vector_types.h"

#define __host__
#define __device__
#define __global__
#define __constant__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))

// One kernel runs at a time in the process, so the running thread's indices are plain variables.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
inline constexpr int warpSize = 32;

namespace cuda_emulator {

using Where = std::source_location;

void sync_threads(Where where);
int sync_threads_count(bool predicate, Where where);
void sync_warp(std::uint32_t mask, Where where);
/// Returns what lane `source` of the mask gives; source outside of this lane's segment of `width`: its own value.
std::uint64_t shuffle(std::uint32_t mask, std::uint64_t value, int source, Where where);
std::uint32_t ballot(std::uint32_t mask, bool predicate, Where where);
std::uint32_t reduce(std::uint32_t mask, std::uint32_t value, std::uint32_t (*combine)(std::uint32_t, std::uint32_t),
                     Where where);
std::uint32_t active_lanes();
int lane();
[[noreturn]] void trap(Where where);

template <class T>
T shuffle_value(std::uint32_t mask, T value, int source, Where where) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) <= 8));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(mask, bits, source, where);
  std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}

template <class To, class From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

}  // namespace cuda_emulator

// Barriers and the warp.

inline void __syncthreads(cuda_emulator::Where where = cuda_emulator::Where::current()) {
  cuda_emulator::sync_threads(where);
}
inline int __syncthreads_count(int predicate, cuda_emulator::Where where = cuda_emulator::Where::current()) {
  return cuda_emulator::sync_threads_count(predicate != 0, where);
}
inline int __syncthreads_or(int predicate, cuda_emulator::Where where = cuda_emulator::Where::current()) {
  return cuda_emulator::sync_threads_count(predicate != 0, where) > 0;
}
inline int __syncthreads_and(int predicate, cuda_emulator::Where where = cuda_emulator::Where::current()) {
  return cuda_emulator::sync_threads_count(predicate == 0, where) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, cuda_emulator::Where where = cuda_emulator::Where::current()) {
  cuda_emulator::sync_warp(mask, where);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize,
              cuda_emulator::Where where = cuda_emulator::Where::current()) {
  const int segment = cuda_emulator::lane() & ~(width - 1);
  return cuda_emulator::shuffle_value(mask, value, segment | (source & (width - 1)), where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = warpSize,
                  cuda_emulator::Where where = cuda_emulator::Where::current()) {
  const int lane = cuda_emulator::lane(), source = lane ^ lanes;
  // Of a later segment a lane gets its own value; an earlier one can be read.
  const bool later = source >= (lane & ~(width - 1)) + width;
  return cuda_emulator::shuffle_value(mask, value, later ? lane : source, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = warpSize,
                   cuda_emulator::Where where = cuda_emulator::Where::current()) {
  const int lane = cuda_emulator::lane(), source = lane + static_cast<int>(lanes);
  return cuda_emulator::shuffle_value(mask, value, source >= (lane & ~(width - 1)) + width ? lane : source, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = warpSize,
                 cuda_emulator::Where where = cuda_emulator::Where::current()) {
  const int lane = cuda_emulator::lane(), source = lane - static_cast<int>(lanes);
  return cuda_emulator::shuffle_value(mask, value, source < (lane & ~(width - 1)) ? lane : source, where);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              cuda_emulator::Where where = cuda_emulator::Where::current()) {
  return cuda_emulator::ballot(mask, predicate != 0, where);
}
inline int __any_sync(unsigned mask, int predicate, cuda_emulator::Where where = cuda_emulator::Where::current()) {
  return cuda_emulator::ballot(mask, predicate != 0, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate, cuda_emulator::Where where = cuda_emulator::Where::current()) {
  return cuda_emulator::ballot(mask, predicate == 0, where) == 0;
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value,
                                  cuda_emulator::Where where = cuda_emulator::Where::current()) {
  return cuda_emulator::reduce(
      mask, value, [](std::uint32_t a, std::uint32_t b) { return a + b; }, where);
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value,
                                  cuda_emulator::Where where = cuda_emulator::Where::current()) {
  return cuda_emulator::reduce(
      mask, value, [](std::uint32_t a, std::uint32_t b) { return a > b ? a : b; }, where);
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value,
                                  cuda_emulator::Where where = cuda_emulator::Where::current()) {
  return cuda_emulator::reduce(
      mask, value, [](std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }, where);
}
inline unsigned __activemask() {
  return cuda_emulator::active_lanes();
}
inline void __trap(cuda_emulator::Where where = cuda_emulator::Where::current()) {
  cuda_emulator::trap(where);
}

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}

// Atomics. Threads switch only where they wait, so a plain read and write is atomic.

#define CUDA_EMULATOR_ATOMICS(T)                              \
  inline T atomicAdd(T* to, T value) {                        \
    return std::exchange(*to, *to + value);                   \
  }                                                           \
  inline T atomicExch(T* to, T value) {                       \
    return std::exchange(*to, value);                         \
  }                                                           \
  inline T atomicMax(T* to, T value) {                        \
    return std::exchange(*to, *to < value ? value : *to);     \
  }                                                           \
  inline T atomicMin(T* to, T value) {                        \
    return std::exchange(*to, value < *to ? value : *to);     \
  }                                                           \
  inline T atomicCAS(T* to, T expected, T value) {            \
    return std::exchange(*to, *to == expected ? value : *to); \
  }
CUDA_EMULATOR_ATOMICS(int)
CUDA_EMULATOR_ATOMICS(unsigned)
CUDA_EMULATOR_ATOMICS(unsigned long long)
#undef CUDA_EMULATOR_ATOMICS
inline float atomicAdd(float* to, float value) {
  return std::exchange(*to, *to + value);
}
inline float atomicExch(float* to, float value) {
  return std::exchange(*to, value);
}
inline double atomicAdd(double* to, double value) {
  return std::exchange(*to, *to + value);
}
inline int atomicSub(int* to, int value) {
  return std::exchange(*to, *to - value);
}
inline unsigned atomicSub(unsigned* to, unsigned value) {
  return std::exchange(*to, *to - value);
}
inline int atomicOr(int* to, int value) {
  return std::exchange(*to, *to | value);
}
inline unsigned atomicOr(unsigned* to, unsigned value) {
  return std::exchange(*to, *to | value);
}
inline int atomicAnd(int* to, int value) {
  return std::exchange(*to, *to & value);
}
inline unsigned atomicAnd(unsigned* to, unsigned value) {
  return std::exchange(*to, *to & value);
}
/// (old >= limit) ? 0 : old + 1
inline unsigned atomicInc(unsigned* to, unsigned limit) {
  return std::exchange(*to, *to >= limit ? 0 : *to + 1);
}

// Loads and stores with cache hints.

template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
template <class T>
T __ldlu(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, T value) {
  *to = value;
}
template <class T>
void __stcg(T* to, T value) {
  *to = value;
}

// Numbers.

inline unsigned __float_as_uint(float x) {
  return cuda_emulator::bits_as<unsigned>(x);
}
inline int __float_as_int(float x) {
  return cuda_emulator::bits_as<int>(x);
}
inline float __uint_as_float(unsigned x) {
  return cuda_emulator::bits_as<float>(x);
}
inline float __int_as_float(int x) {
  return cuda_emulator::bits_as<float>(x);
}
inline long long __double_as_longlong(double x) {
  return cuda_emulator::bits_as<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return cuda_emulator::bits_as<double>(x);
}
inline int __float2int_rn(float x) {
  return static_cast<int>(std::nearbyint(x));
}
inline int __float2int_rz(float x) {
  return static_cast<int>(x);
}
inline float __int2float_rn(int x) {
  return static_cast<float>(x);
}
inline float __uint2float_rn(unsigned x) {
  return static_cast<float>(x);
}
inline float __double2float_rn(double x) {
  return static_cast<float>(x);
}

inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
  return __builtin_popcountll(x);
}
inline int __clz(int x) {
  return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
inline int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<std::uint64_t>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>(static_cast<Wide>(a) * b >> 64);
}

inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline double rsqrt(double x) {
  return 1.0 / std::sqrt(x);
}
// The C library declares these names, so they cannot be functions of our own.
#define __expf(x) std::exp(static_cast<float>(x))
#define __exp10f(x) std::pow(10.0f, static_cast<float>(x))
#define __logf(x) std::log(static_cast<float>(x))
#define __log2f(x) std::log2(static_cast<float>(x))
#define __powf(x, y) std::pow(static_cast<float>(x), static_cast<float>(y))
#define __sinf(x) std::sin(static_cast<float>(x))
#define __cosf(x) std::cos(static_cast<float>(x))
#define __sincosf(x, sine, cosine) sincosf(x, sine, cosine)
inline float __fdividef(float x, float y) {
  return x / y;
}
inline float __frcp_rn(float x) {
  return 1.0f / x;
}
inline float __frsqrt_rn(float x) {
  return 1.0f / std::sqrt(x);
}
inline float __fsqrt_rn(float x) {
  return std::sqrt(x);
}
inline float __fadd_rn(float x, float y) {
  return x + y;
}
inline float __fsub_rn(float x, float y) {
  return x - y;
}
inline float __fmul_rn(float x, float y) {
  return x * y;
}
inline float __fdiv_rn(float x, float y) {
  return x / y;
}
inline float __fmaf_rn(float x, float y, float z) {
  return std::fma(x, y, z);
}
inline double __dadd_rn(double x, double y) {
  return x + y;
}
inline double __dmul_rn(double x, double y) {
  return x * y;
}
inline double __fma_rn(double x, double y, double z) {
  return std::fma(x, y, z);
}
inline float __saturatef(float x) {
  return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f;
}

#define CUDA_EMULATOR_MIN_MAX(T) \
  constexpr T min(T a, T b) {    \
    return b < a ? b : a;        \
  }                              \
  constexpr T max(T a, T b) {    \
    return a < b ? b : a;        \
  }
CUDA_EMULATOR_MIN_MAX(int)
CUDA_EMULATOR_MIN_MAX(unsigned)
CUDA_EMULATOR_MIN_MAX(long)
CUDA_EMULATOR_MIN_MAX(unsigned long)
CUDA_EMULATOR_MIN_MAX(long long)
CUDA_EMULATOR_MIN_MAX(unsigned long long)
#undef CUDA_EMULATOR_MIN_MAX
// A NaN gives way to a number, as in CUDA.
inline float min(float a, float b) {
  return std::fmin(a, b);
}
inline float max(float a, float b) {
  return std::fmax(a, b);
}
inline double min(double a, double b) {
  return std::fmin(a, b);
}
inline double max(double a, double b) {
  return std::fmax(a, b);
}
