// Code that the programs share around their work: every failure becomes one message on stderr and an exit code.
#pragma once

#include <functional>
#include <string>

#include "parallel/launch/launcher.h"

namespace ringtrain {

/// Returns what a user types before the name of another command: "build/release/bin/", or "ringtrain ".
std::string command_prefix();

/// Runs body and returns its exit code; for an Error, prints "NAME: message" and returns its code. Any other exception
/// is our own fault: 70. First takes control of the standard streams and signals. Output that does not reach stdout is
/// an error; a message that does not reach stderr is not.
int run_program(const char* name, const std::function<int()>& body);

/// Does the same for a program of several ranks, which may be processes: body runs in each of them, and they end
/// together. If several fail, one process reports the first error; for an error between ranks, it also reports what
/// each rank did last. on_signal: whether body saves on a signal (framework/system/signals.h) or just ends.
enum class OnSignal { end, save };
int run_rank_program(const char* name, const std::function<int(Launcher& launcher)>& body, OnSignal on_signal);

}  // namespace ringtrain
