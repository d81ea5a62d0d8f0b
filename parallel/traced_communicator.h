// A communicator that records what passes through it on a timeline: each exchange on the communication row from its
// post until the rank has seen its end, each wait on the rank's own row. Exists only where something is traced; bits,
// order and errors are those of the communicator within.
#pragma once

#include <memory>

#include "framework/trace.h"
#include "parallel/communicator.h"

namespace ringtrain {

/// Return inner's calls, recorded. What is split off it is recorded, too. inner and trace must outlive it.
std::unique_ptr<Communicator> traced(Communicator& inner, RankTrace& trace);

}  // namespace ringtrain
