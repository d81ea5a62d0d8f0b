// The interface between tests and the emulated NCCL. Its ranks are threads of this process with a device each, so a
// device identifies a rank. All of it may be used from any thread, and reset() drops its state.
#pragma once

#include <string>
#include <vector>

#include "nccl.h"

namespace cuda_emulator {

/// Sets NCCL's version, encoded as by NCCL_VERSION; by default that of nccl.h. From 2.30 on, ranks of one host may
/// share a device if NCCL_MULTI_RANK_GPU_ENABLE is 1.
void set_nccl_version(int version);

/// Sets how often polls of a started operation of a communicator return "in progress" at least; by default 3.
void set_nccl_polls(int polls);

/// The `nth` call from now (1: the next) of the function with this name, by any rank, returns `result` and does
/// nothing.
void fail_nccl_call(const std::string& function, int nth, ncclResult_t result);
/// The `nth` group from now on this device, in any communicator, never begins.
void hang_nccl_group(int device, int nth);
/// The same, and soon after it was posted, its communicator has this error and stops.
void break_nccl_group(int device, int nth, ncclResult_t error);

/// Returns the violations of NCCL's rules since the last reset, to which real NCCL would respond with a hang, a crash,
/// or an error that is easily overlooked.
std::vector<std::string> nccl_misuses();
/// Returns how many communicators have been joined and neither destroyed nor aborted.
int nccl_communicators();
/// Returns how many have been created since the last reset.
int nccl_communicators_made();

}  // namespace cuda_emulator
