// The vector types of CUDA that ringtrain uses, with CUDA's sizes and alignments.
#pragma once

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

#define CUDA_EMULATOR_VECTORS(type, element, bytes)                              \
  struct alignas(2 * (bytes)) type##2 {                                          \
    element x, y;                                                                \
  };                                                                             \
  struct alignas(4 * (bytes) > 16 ? 16 : 4 * (bytes)) type##4 {                  \
    element x, y, z, w;                                                          \
  };                                                                             \
  constexpr type##2 make_##type##2(element x, element y) {                       \
    return {x, y};                                                               \
  }                                                                              \
  constexpr type##4 make_##type##4(element x, element y, element z, element w) { \
    return {x, y, z, w};                                                         \
  }
CUDA_EMULATOR_VECTORS(uint, unsigned, 4)
CUDA_EMULATOR_VECTORS(float, float, 4)
#undef CUDA_EMULATOR_VECTORS
