// The only file that decides which backend transfers what between the ranks of a run, and that makes its communicators:
// from mesh.backend, the device, how the ranks were started, and whether each has its own GPU.
//
// Host memory goes through the ranks' own communicator, `world`: threads of one process, or MPI processes (Launcher).
// GPU memory also goes through world if ranks are threads that share GPUs, or whose GPUs can access each other: copy
// engines transfer it, which leave every multiprocessor to attention, and sums have the bits of one GPU. Everything
// else goes through NCCL.
#pragma once

#include <memory>

#include "framework/config/mesh_config.h"
#include "framework/device.h"
#include "framework/profile/trace.h"
#include "framework/stream.h"
#include "parallel/communicator.h"

namespace ringtrain {

class Launcher;

/// Returns whether NCCL connects the ranks of a run on GPUs, given whether each has its own GPU. Checks whether this
/// machine's GPUs can access each other. Does not communicate.
bool nccl_joins(const MeshConfig& mesh, bool a_gpu_each);

/// Returns whether NCCL would connect the ranks of a mesh with devices of this kind, as far as this machine can
/// determine: for plans, in which no rank runs. Does not communicate.
bool nccl_is_planned(const MeshConfig& mesh, Device device);

/// Throws Error(usage) if GPU memory could not be transferred between the ranks of world: with NCCL, each must have its
/// own GPU, or mesh.share_gpu must be true and supported (nccl_refusal()). Collective; device is this rank's.
void require_carrier(const MeshConfig& mesh, Communicator& world, Device device, const Launcher& launcher);

/// Returns all ranks of world connected by NCCL, with the fault that the environment requests, traced if trace is not
/// null. Returns null if world itself transfers GPU memory, or there is none to transfer; threads' GPUs then get access
/// to each other, if possible. Collective. world, stream, and trace must outlive it. Throws Error(usage) if NCCL is
/// requested and cannot connect the ranks or is not in this build, and Error(device) if NCCL does not start.
std::shared_ptr<Communicator> make_device_communicator(const MeshConfig& mesh, Communicator& world, Stream& stream,
                                                       RankTrace* trace);

}  // namespace ringtrain
