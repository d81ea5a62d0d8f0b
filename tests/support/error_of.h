// For tests of what is refused: runs an action that must fail, and gives what it said.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "framework/error.h"

namespace ringtrain::testing {

/// Runs action, which must throw an Error of this code; return its sentence.
template <class Action>
std::string error_of(ExitCode code, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

}  // namespace ringtrain::testing
