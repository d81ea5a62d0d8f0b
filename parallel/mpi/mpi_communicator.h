// The communicator whose ranks are processes of an MPI launcher: a group of ranks and a context of an MpiWorld. A
// message is done for its sender as soon as its buffer may be reused, which may be before the receiver has posted its
// side.
#pragma once

#include <memory>

#include "parallel/communicator.h"
#include "parallel/mpi/mpi_world.h"

namespace ringtrain {

/// Returns the communicator of all ranks of `world`, which must outlive it. All that it returns share one context, so a
/// rank uses one after the other. Does not communicate.
std::unique_ptr<Communicator> make_mpi_communicator(MpiWorld& world);

}  // namespace ringtrain
