// What the three programs share around their work: every failure becomes one sentence on stderr and an exit code.
#pragma once

#include <functional>

namespace ringtrain {

/// Runs body and returns its exit code; of an Error, prints "NAME: sentence" and returns its code. Any other exception
/// is our own fault: 70.
int run_program(const char* name, const std::function<int()>& body);

}  // namespace ringtrain
