// __nv_bfloat16 and __nv_bfloat162 with the conversions that ringtrain uses. Rounding is to nearest even; a NaN becomes
// CUDA's canonical 0x7fff.
#pragma once

#include "cuda_emulator_builtins.h"

struct __nv_bfloat16_raw {
  unsigned short x;
};

struct __nv_bfloat16 {
  __nv_bfloat16() = default;
  constexpr __nv_bfloat16(__nv_bfloat16_raw raw) : bits_(raw.x) {}
  __nv_bfloat16(float value) : bits_(rounded(value)) {}
  operator float() const { return __uint_as_float(static_cast<unsigned>(bits_) << 16); }
  constexpr operator __nv_bfloat16_raw() const { return {bits_}; }

 private:
  static unsigned short rounded(float value) {
    const unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
  unsigned short bits_;
};

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  __nv_bfloat162() = default;
  constexpr __nv_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) : x(a), y(b) {}
};

inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  return __nv_bfloat16(x);
}
inline float __bfloat162float(__nv_bfloat16 x) {
  return x;
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
