// What every translation unit must be compiled with that includes our headers: C++20, and numbers as IEEE 754 has them.
#pragma once

#if defined(__cplusplus) && __cplusplus < 202002L
#error "ringtrain needs C++20: compile with -std=c++20, or link the target ringtrain::ring, which asks for it"
#endif
// Linked so, GCC sets the processor of the whole process to flush subnormal numbers, and inline code that looks for NaN
// and infinity is left out.
#if defined(__FAST_MATH__)
#error "ringtrain is not to be compiled or linked with -ffast-math: its results would depend on it, and NaN be missed"
#endif
