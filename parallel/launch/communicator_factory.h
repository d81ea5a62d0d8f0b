// The one place that decides which backend carries what between the ranks of a run, and that makes its communicators:
// from mesh.backend, the device, how the ranks were started, and whether each has a GPU of its own.
//
// Host memory goes through the ranks' own communicator, `world`: threads of one process, or MPI processes (Launcher).
// GPU memory goes through world as well where ranks are threads that share GPUs, or whose GPUs reach each other: copy
// engines carry it, which leave every multiprocessor to attention, and sums have the bits of one GPU. Everything else
// goes through NCCL.
#pragma once

#include <memory>

#include "framework/config/mesh_config.h"
#include "framework/device.h"
#include "framework/profile/trace.h"
#include "framework/stream.h"
#include "parallel/communicator.h"

namespace ringtrain {

class Launcher;

/// Returns whether NCCL joins the ranks of a run on GPUs, given whether each has a GPU of its own. Asks this machine
/// whether its GPUs reach each other. Does not communicate.
bool nccl_joins(const MeshConfig& mesh, bool a_gpu_each);

/// Returns whether NCCL would join the ranks of a mesh, whose device is of this kind, as far as this machine can tell:
/// for plans, where no rank runs. Does not communicate.
bool nccl_is_planned(const MeshConfig& mesh, Device device);

/// Throws Error(usage) if nothing could carry GPU memory between the ranks of world: where NCCL is to, each must have a
/// GPU of its own, or mesh.share_gpu must be true and serve (nccl_refusal()). Collective; device is this rank's.
void require_carrier(const MeshConfig& mesh, Communicator& world, Device device, const Launcher& launcher);

/// Returns all ranks of world joined by NCCL, with the fault that the environment wants, traced if trace is not null;
/// null where world itself carries GPU memory, or there is none to carry; threads' GPUs are then allowed to reach each
/// other, where they can. Collective. world, stream and trace must outlive it. Throws Error(usage) if NCCL is asked for
/// and cannot join the ranks or is not in this build, Error(device) if NCCL does not start.
std::shared_ptr<Communicator> make_device_communicator(const MeshConfig& mesh, Communicator& world, Stream& stream,
                                                       RankTrace* trace);

}  // namespace ringtrain
