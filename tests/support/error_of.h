// For tests of refusals: runs an action that must fail, and returns its message, or compares it with a sentence.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "framework/error.h"

namespace ringtrain::testing {

/// Runs action, which must throw an Error with this code; returns its message.
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

/// Returns whether a text contains a part, or every part, and shows both if the test fails.
inline ::testing::AssertionResult holds(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  return ::testing::AssertionResult(found) << (found ? "found: " : "not found: ") << part << "\nin: " << text;
}
inline ::testing::AssertionResult holds_all(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (auto one = holds(text, part); !one) return one;
  }
  return ::testing::AssertionSuccess();
}

/// Expects an action to throw an Error with this code whose message contains every part, or this one.
template <class Action>
void expect_error_holding(ExitCode code, const std::vector<std::string>& parts, Action&& action,
                          const CallerLine& here = CallerLine::current()) {
  const ::testing::ScopedTrace trace(here.file_name(), static_cast<int>(here.line()), "an error");
  EXPECT_TRUE(holds_all(error_of(code, std::forward<Action>(action)), parts));
}
template <class Action>
void expect_error(ExitCode code, const std::string& part, Action&& action,
                  const CallerLine& here = CallerLine::current()) {
  expect_error_holding(code, {part}, std::forward<Action>(action), here);
}

/// Expects a call, in the same statement, to be refused as its caller's mistake: with this message after the source
/// location of the call.
template <class Call>
void expect_refused(const std::string& sentence, const Call& call, const CallerLine& here = CallerLine::current()) {
  constexpr std::uint_least32_t statement = 6;  // lines
  const std::string found = error_of(ExitCode::usage, call);
  for (auto line = here.line() - statement; line <= here.line() + statement; ++line) {
    if (found == fmt::format("{}:{}: {}", here.file_name(), line, sentence)) return;
  }
  ADD_FAILURE() << "at line " << here.line() << ", not\n  " << sentence << "\nbut\n  " << found;
}

}  // namespace ringtrain::testing
