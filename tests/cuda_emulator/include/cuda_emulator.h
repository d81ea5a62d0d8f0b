// The interface between tests and the emulator: its devices, the order in which threads and streams run, calls that
// fail, and what ran. All of it applies to the process, and may be used from any thread.
//
// Initialized from the environment, before the first call:
//   CUDA_EMULATOR_DEVICES, CUDA_EMULATOR_FIRST_DEVICE, CUDA_EMULATOR_CAPABILITY (80, 90),
//   CUDA_EMULATOR_MULTIPROCESSORS, CUDA_EMULATOR_MEMORY (bytes), CUDA_EMULATOR_THREADS, CUDA_EMULATOR_STREAMS,
//   CUDA_EMULATOR_COPIES (an order, by its name below; shuffled takes a seed: "shuffled:7"), CUDA_EMULATOR_FAULT
//   (DEVICE:FUNCTION:NTH: the device permanently fails at the nth call of that function there), CUDA_EMULATOR_TELL
//   (set:
//   misuse of NCCL is reported on stderr), CUDA_EMULATOR_NCCL_DEATHS (unseen: as within a machine;
//   nccl_remote_ranks.h), CUDA_EMULATOR_NCCL_FAULT (RANK:NTH:ACTION: the nth group of the process with this rank hangs,
//   the process exits there with code 0, or that group and later ones deliver a wrong bit; for ACTION hang, leave,
//   wrong).
//   leave, wrong).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "driver_types.h"

namespace cuda_emulator {

/// A misuse of the device to which hardware would respond with a hang, a crash, or a wrong number. Thrown by the call
/// that ran the work; everything queued on the device is dropped.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The devices, all of them equal. Changing them drops all streams, events, allocations, and settings, like reset().
struct Devices {
  int count = 1;
  int compute_capability = 90;  // 80 has no TMA, no wgmma and less shared memory
  int multiprocessors = 8;
  std::size_t memory_bytes = std::size_t{8} << 30;
  int first = 0;            // among the machine's devices; distinguishes these from those of other processes
  bool peer_access = true;  // whether each may be given access to the memory of the others
};
void set_devices(const Devices& devices);
/// Returns how many ordered pairs of devices have been given access since then.
int peer_accesses();

/// The order in which the blocks of a grid run, and the threads of a block when several could continue. Results must
/// not depend on it.
enum class ThreadOrder { forward, backward, shuffled };
void set_thread_order(ThreadOrder order, std::uint64_t seed = 0);

/// When the work of streams runs. lazy: only what is needed. eager: at the call. others_first: before what is needed,
/// everything of all other streams, newest stream first. shuffled: what is needed, with pieces of other streams in
/// between.
enum class StreamOrder { lazy, eager, others_first, shuffled };
void set_stream_order(StreamOrder order, std::uint64_t seed = 0);

/// When an asynchronous copy inside a kernel (cp.async, TMA, bulk) reads its source and writes its destination. late:
/// when a thread waits for it. early: when it is issued.
enum class CopyLanding { late, early };
void set_copy_landing(CopyLanding landing);

/// The products for which the emulated cuBLASLt has no algorithm although they are valid: those with a bias, or those
/// whose pointers must be aligned to more than an element.
enum class BlasRefusal { nothing, bias, alignment };
void set_blas_refusal(BlasRefusal refusal);

/// Whether the emulator records which thread wrote each word of dynamic shared memory. It then detects every read by
/// TMA or wgmma of data that a thread wrote without its own fence_proxy_async afterwards. Otherwise, it only detects
/// that no thread has called one. It costs a comparison of the block's shared memory whenever threads switch.
void set_proxy_checks(bool on);

/// Whether loading waits, as a driver's may: the first launch of a kernel on a device, the first product of a shape
/// there, and each call that allocates or frees memory return when all devices of the process have finished the work
/// that their streams received before. If a stream there waits for the calling thread, it waits forever.
void set_loading_waits(bool on);

/// By how much a host thread that queries an event, or waits for one, is late, as if the machine did not run it. Until
/// then, nothing is done for it. Threads that have waited for a stream, which lead a step, are on time.
void set_late_event_waits(std::chrono::milliseconds late);

/// How long work takes by the clock of its stream, which events report (cudaEventElapsedTime). Not set: as long as on
/// the CPU. A host that waits for work does not return earlier than by that clock.
struct Durations {
  std::optional<std::chrono::nanoseconds> kernel{};       // each kernel, matrix product and memset
  std::optional<std::chrono::nanoseconds> device_copy{};  // each copy from device memory to device memory
  bool instant_host = false;  // calls take no time: an idle stream does not wait for a busy machine's host
};
void set_durations(const Durations& durations);

/// A piece of work that ran on a device.
struct Trace {
  enum class Kind { kernel, copy, set, host_function, matrix_product, exchange, record, wait };
  Kind kind;
  int device;
  int stream;              // in the order of creation, from 1, since the last reset; 0: the default stream
  std::string name;        // of a kernel: its function; of a copy: "host to device" and so on
  std::size_t bytes;       // of a copy or set
  std::size_t blocks = 0;  // of a kernel
};
/// Starts recording what runs; drops earlier records.
void start_trace();
/// Returns what ran since start_trace, in that order, and stops recording.
std::vector<Trace> take_trace();

/// Returns how often the host called functions that wait for a device, or may wait, since the last reset: by function,
/// with an additional word if only some of its calls wait. It counts whether or not there was something to wait for. In
/// addition to explicit waits, these are synchronous copies and sets, copies that involve memory that is not pinned or
/// both sides of which are on the host, allocating memory (also pinned) and freeing it; and queries of an event or a
/// stream that has not passed, for which a caller waits in a loop.
std::map<std::string, std::size_t> host_waits();
/// Returns how often each API function was called since the last reset.
std::map<std::string, std::size_t> calls();
/// Returns the devices on which the process has had a context since the last reset: those that threads chose, and
/// device 0 if a thread that chose none called a function that needs one. Such a call throws Error once any thread has
/// chosen another device: on a machine with several cards, it would take half a gigabyte of a card that does not belong
/// to its rank.
std::set<int> contexts();
/// Returns how many pieces of work the process has ever given to streams, and how many of them ran.
std::size_t work_given();
std::size_t work_done();
/// Returns how much work the process has ever given to a default stream, with which others are ordered by accident, if
/// at all.
std::size_t default_stream_work();

/// A signal between threads: an arrival at an mbarrier, or a step of a counter (add_release).
enum class Signal { arrival, release };
/// Loses the `nth` signal from now (1: the next), as if by a fault of the program: a thread that waits for it waits
/// forever. 0: none is lost. A reset does not change this.
void lose(Signal signal, int nth);

/// The `nth` call from now (1: the next) of the API function with this name, such as "cudaMalloc", returns `error` and
/// does nothing.
void fail_call(const std::string& function, int nth, cudaError_t error);
/// From now on, every call that concerns this device returns `error`, as after a fault that requires a new process.
void fail_device(int device, cudaError_t error);

/// Drops everything: streams and their work, events, allocations (which it frees), settings, failures, traces. No other
/// thread may be inside the emulator.
void reset();

}  // namespace cuda_emulator
