// For tests of failing ranks: a launch of threads whose first error must end all of them quickly.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <string>

#include "parallel/launch/launch.h"

namespace ringtrain::testing {

inline void expect_words(const Error& error, ExitCode code, std::initializer_list<const char*> words) {
  EXPECT_EQ(error.code(), code) << error.what();
  for (const char* word : words) EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
}

/// Expects a launch to end with an error with this code and these words, long before any timeout.
inline void expect_failure(int ranks, ExitCode code, std::initializer_list<const char*> words, const RankBody& body,
                           double timeout_seconds = 120) {
  const auto start = std::chrono::steady_clock::now();
  try {
    launch_threads({.ranks = ranks, .timeout_seconds = timeout_seconds}, body);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    expect_words(error, code, words);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace ringtrain::testing
