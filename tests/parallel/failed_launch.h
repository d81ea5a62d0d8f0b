// For tests of failing ranks: a launch of threads whose first error must end all of them quickly.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <string>

#include "parallel/launch/launch.h"
#include "tests/support/error_of.h"

namespace ringtrain::testing {

/// Expects a launch to end with an error with this code and these words, long before any timeout.
inline void expect_failure(int ranks, ExitCode code, std::initializer_list<const char*> words, const RankBody& body,
                           double timeout_seconds = 120) {
  const auto start = std::chrono::steady_clock::now();
  const std::string sentence =
      error_of(code, [&] { launch_threads({.ranks = ranks, .timeout_seconds = timeout_seconds}, body); });
  for (const char* word : words) EXPECT_NE(sentence.find(word), std::string::npos) << sentence;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace ringtrain::testing
