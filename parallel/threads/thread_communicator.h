// The communicator whose ranks are threads of one process. A message moves as soon as both sides have posted it: the
// second one copies, directly from the sender's buffer to the receiver's, outside the lock. No spinning, no staging.
// Between GPUs (or within one that ranks share), it gives the copy to a stream (framework/copy_stream.h).
//
// Everything can be poisoned: the first error of any rank (abort, a timeout, sizes that disagree) ends every pending
// and later call on every communicator split from the same world. Once such a call has thrown, no other thread touches
// this rank's buffers any more, so unwinding may free them (on GPUs, by cudaFree, which waits for copies). A
// communicator that is destroyed with pending exchanges (by an exception between exchange and wait) withdraws them;
// buffers of an exchange must outlive its communicator.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace ringtrain {

struct ThreadWorld {
  std::vector<std::unique_ptr<Communicator>> ranks;
  /// Returns the last calls of each rank, at the time of the first error; empty without one.
  std::function<std::string()> calls;
};

/// Returns the communicators of a new world, one for each of `ranks` threads.
ThreadWorld make_thread_world(int ranks, double timeout_seconds);

}  // namespace ringtrain
