// Checks how a translation unit that includes our headers is compiled: as C++20, and with IEEE 754 numbers.
#pragma once

#if defined(__cplusplus) && __cplusplus < 202002L
#error "ringtrain needs C++20: compile with -std=c++20, or link the target ringtrain::ring, which asks for it"
#endif
// A program that GCC links with this option flushes subnormal numbers in its whole process, and inline code that tests
// for NaN and infinity is removed.
#if defined(__FAST_MATH__)
#error "do not compile or link ringtrain with -ffast-math: results would change, and NaN would go unnoticed"
#endif
