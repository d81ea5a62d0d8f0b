// The device code features of CUDA C++ that need no header: qualifiers, the indices of a thread, barriers, the warp's
// collectives, atomics, and the math functions that are missing in the C library.
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
void sync_warp(std::uint32_t mask, Where where);
/// Returns the value of lane `source` of the mask; the lane's own value if source is outside its segment of `width`.
std::uint64_t shuffle(std::uint32_t mask, std::uint64_t value, int source, Where where);
std::uint32_t ballot(std::uint32_t mask, bool predicate, Where where);
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
  // For a later segment, a lane gets its own value; an earlier one can be read.
  const bool later = source >= (lane & ~(width - 1)) + width;
  return cuda_emulator::shuffle_value(mask, value, later ? lane : source, where);
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
inline void __trap(cuda_emulator::Where where = cuda_emulator::Where::current()) {
  cuda_emulator::trap(where);
}

inline void __threadfence() {}
inline void __threadfence_system() {}

// Threads switch only where they wait, so a plain read and write is atomic.

template <class T>
T atomicAdd(T* to, std::type_identity_t<T> value) {
  return std::exchange(*to, *to + value);
}

// Loads and stores with cache hints.

template <class T>
T __ldg(const T* from) {
  return *from;
}

// Numbers.

inline unsigned __float_as_uint(float x) {
  return cuda_emulator::bits_as<unsigned>(x);
}
inline float __uint_as_float(unsigned x) {
  return cuda_emulator::bits_as<float>(x);
}

inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}

inline double rsqrt(double x) {
  return 1.0 / std::sqrt(x);
}
// The C library declares these names, so they cannot be our own functions.
#define __expf(x) std::exp(static_cast<float>(x))
inline float __fdividef(float x, float y) {
  return x / y;
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
// A number has precedence over a NaN, as in CUDA.
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
