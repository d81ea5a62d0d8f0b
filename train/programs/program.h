// What the programs share around their work: every failure becomes one sentence on stderr and an exit code.
#pragma once

#include <functional>
#include <string>

#include "parallel/launch/launcher.h"

namespace ringtrain {

/// Returns what a user types before the name of another command: "build/release/bin/", or "ringtrain ".
std::string command_prefix();

/// Runs body and returns its exit code; of an Error, prints "NAME: sentence" and returns its code. Any other exception
/// is our own fault: 70. Takes the standard streams and signals into its hands first; output that did not reach stdout
/// is an error, a message that did not reach stderr is none.
int run_program(const char* name, const std::function<int()>& body);

/// The same for a program of several ranks, which may be processes: body runs in each of them, and they end together.
/// Of several that fail, one tells the first error; of an error between ranks it tells what each rank did last, too.
/// on_signal: whether body saves upon a signal (framework/system/signals.h) or just ends.
enum class OnSignal { end, save };
int run_rank_program(const char* name, const std::function<int(Launcher& launcher)>& body,
                     OnSignal on_signal = OnSignal::end);

}  // namespace ringtrain
