// The communicator whose ranks are processes of an MPI launcher: a group of ranks and a context of an MpiWorld. A
// message is done for its sender as soon as its buffer is free again, which may be before the receiver has asked for
// it.
#pragma once

#include <memory>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/mpi/mpi_world.h"

namespace ringtrain {

/// members: world ranks, this process's among them, in the order of the new ranks. world must outlive it.
std::unique_ptr<Communicator> make_mpi_communicator(MpiWorld& world, std::vector<int> members, int context);

}  // namespace ringtrain
