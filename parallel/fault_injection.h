// Intentional faults, for tests: a rank that is killed, stops, slows down, diverges, or throws at a communicator call
// that the environment specifies. Without the variable, a run contains nothing of it.
#pragma once

#include <memory>

#include "parallel/communicator.h"

namespace ringtrain {

/// RINGTRAIN_FAULT=RANK:OPERATION:COUNT:ACTION: at its exchange number COUNT for OPERATION (a CallSite's), rank RANK
/// does ACTION: kill (SIGKILL to its process), stop (SIGSTOP), slow (0.05 s before this and each later exchange),
/// diverge (posts another operation), throw (an Error of code 5). It logs this on stderr, with the time. Returns a
/// communicator that does this, counts only its own calls, and forwards everything to ranks; returns ranks itself if
/// this rank has no fault. Throws Error(usage) if the variable is invalid.
std::shared_ptr<Communicator> with_fault_of_environment(std::shared_ptr<Communicator> ranks);

}  // namespace ringtrain
