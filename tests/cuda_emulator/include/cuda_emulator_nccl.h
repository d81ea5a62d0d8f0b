// What tests say to the emulated NCCL and read from it. Its ranks are threads of this process with a device each, so
// that a device names a rank. All of it may be used from any thread, and is forgotten by reset().
#pragma once

#include <string>
#include <vector>

#include "nccl.h"

namespace cuda_emulator {

/// The version that NCCL has, as its own NCCL_VERSION makes it of three numbers; that of nccl.h unless set. From 2.30
/// on ranks of one host may share a device, where NCCL_MULTI_RANK_GPU_ENABLE is 1.
void set_nccl_version(int version);

/// What communicators begin answers "in progress" so often at least, whenever somebody polls; 3 unless set.
void set_nccl_polls(int polls);

/// The `nth` call from now (1: the next) of the function of this name, by any rank, returns `result` and does nothing.
void fail_nccl_call(const std::string& function, int nth, ncclResult_t result);
/// The `nth` group from now that this device is given, in any communicator, never begins.
void hang_nccl_group(int device, int nth);
/// The same, and soon after it was posted its communicator has this error, and goes no further.
void break_nccl_group(int device, int nth, ncclResult_t error);

/// Returns what was done against NCCL's rules since the last reset: what real NCCL would answer with a hang, a crash,
/// or an error that is easily overlooked.
std::vector<std::string> nccl_misuses();
/// Returns how many communicators have been joined and neither destroyed nor aborted.
int nccl_communicators();
/// Returns how many were ever begun since the last reset.
int nccl_communicators_made();

}  // namespace cuda_emulator
