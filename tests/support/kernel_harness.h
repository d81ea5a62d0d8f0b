// What tests of single kernels share: a CPU stream with its pool, and "the same bits for any number of workers".
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "framework/stream.h"
#include "tests/support/random_tensor.h"

namespace ringtrain::testing {

struct CpuStream {
  explicit CpuStream(int workers = 2) : pool(workers), stream(pool) {}
  operator Stream&() { return stream; }
  ThreadPool pool;
  Stream stream;
};

/// result(Stream&) returns a vector; its bits must not depend on the number of workers.
template <class Result>
void expect_same_bits_for_any_workers(Result&& result) {
  CpuStream one(1);
  const auto expected = result(one.stream);
  for (int workers : {2, 3, 5}) {
    CpuStream many(workers);
    const auto got = result(many.stream);
    ASSERT_EQ(got.size(), expected.size());
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(got[0])), 0) << workers << " workers";
  }
}

/// The types of typed tests.
using RealTypes = ::testing::Types<float, double>;

/// The allowed difference of a kernel of T from the double reference, in max|difference| / max|reference|.
template <class T>
constexpr double tolerance = sizeof(T) == 8 ? 1e-13 : 3e-6;

}  // namespace ringtrain::testing
