// What tests say to the emulator and read from it: the devices there are, the order in which threads and streams run,
// calls that fail, and what ran. All of it is the process's, and may be used from any thread.
//
// Set once by the environment, before the first call:
//   CUDA_EMULATOR_DEVICES, CUDA_EMULATOR_FIRST_DEVICE, CUDA_EMULATOR_CAPABILITY (80, 90),
//   CUDA_EMULATOR_MULTIPROCESSORS, CUDA_EMULATOR_MEMORY (bytes), CUDA_EMULATOR_THREADS, CUDA_EMULATOR_STREAMS,
//   CUDA_EMULATOR_COPIES (an order, by its name below; shuffled takes a seed: "shuffled:7"), CUDA_EMULATOR_FAULT
//   (DEVICE:FUNCTION:NTH: the device fails at the nth call of that function there, for good), CUDA_EMULATOR_TELL (set:
//   misuse of NCCL is reported on stderr), CUDA_EMULATOR_NCCL_DEATHS (unseen: as within a machine;
//   nccl_remote_ranks.h), CUDA_EMULATOR_NCCL_FAULT (RANK:NTH:ACTION: the nth group of the process that has this rank
//   hangs, the process leaves there with code 0, or that group and later ones bring a wrong bit; for ACTION hang,
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

/// A misuse of the device that hardware would answer with a hang, a crash or a wrong number. Thrown by the call that
/// made the work run; everything queued on the device is dropped.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The devices, all alike. Changing them forgets all streams, events, allocations and settings, as reset() does.
struct Devices {
  int count = 1;
  int compute_capability = 90;  // 80 has no TMA, no wgmma and less shared memory
  int multiprocessors = 8;
  std::size_t memory_bytes = std::size_t{8} << 30;
  int first = 0;            // of the machine's devices, which tells these from those of other processes
  bool peer_access = true;  // whether each may be allowed to reach the memory of the others
};
void set_devices(const Devices& devices);
/// Returns how many ordered pairs of devices were allowed access since then.
int peer_accesses();

/// The order in which the blocks of a grid run, and the threads of a block wherever several could go on. Results must
/// not depend on it.
enum class ThreadOrder { forward, backward, shuffled };
void set_thread_order(ThreadOrder order, std::uint64_t seed = 0);

/// When the work of streams runs. lazy: only what is needed. eager: at the call. others_first: before what is needed,
/// everything of all other streams, newest stream first. shuffled: what is needed, and pieces of other streams between.
enum class StreamOrder { lazy, eager, others_first, shuffled };
void set_stream_order(StreamOrder order, std::uint64_t seed = 0);

/// When an asynchronous copy inside a kernel (cp.async, TMA, bulk) reads its source and writes its destination. late:
/// when a thread waits for it. early: when it is issued.
enum class CopyLanding { late, early };
void set_copy_landing(CopyLanding landing);

/// Which products the emulated cuBLASLt has no algorithm for, though it is asked rightly: those with a bias, or those
/// whose pointers must be aligned to more than an element.
enum class BlasRefusal { nothing, bias, alignment };
void set_blas_refusal(BlasRefusal refusal);

/// Whether the emulator keeps account of who wrote each word of dynamic shared memory, so that it sees every read by
/// TMA or wgmma of what a thread wrote without a fence_proxy_async of its own behind. Off, it sees only that no thread
/// has called one. Costs a comparison of the block's shared memory whenever threads change.
void set_proxy_checks(bool on);

/// Whether loading waits, as a driver's may: the first launch of a kernel on a device, the first product of a shape
/// there, and each call that gets memory or gives it back return when all devices of the process have done what their
/// streams were given before. Who is waited for by a stream there waits for ever.
void set_loading_waits(bool on);

/// By how much a host thread that asks for an event, or waits for one, comes late: as one that the machine does not
/// run. Until then it has nothing done for it. Threads that have waited for a stream, which lead a step, are in time.
void set_late_event_waits(std::chrono::milliseconds late);

/// How long work takes by the clock of its stream, which events tell (cudaEventElapsedTime). Not set: as long as it
/// takes the CPU. A host that waits for work is not sooner back than that clock says.
struct Durations {
  std::optional<std::chrono::nanoseconds> kernel{};       // each kernel, matrix product and memset
  std::optional<std::chrono::nanoseconds> device_copy{};  // each copy from device memory to device memory
  bool instant_host = false;  // calls take no time: what an idle stream waits for a busy machine's host does not count
};
void set_durations(const Durations& durations);

/// A piece of work that ran on a device.
struct Trace {
  enum class Kind { kernel, copy, set, host_function, matrix_product, exchange, record, wait };
  Kind kind;
  int device;
  int stream;              // counted from 1 as they were created, from the last reset; 0: the default stream
  std::string name;        // of a kernel: its function; of a copy: "host to device" and so on
  std::size_t bytes;       // of a copy or set
  std::size_t blocks = 0;  // of a kernel
};
/// From here on what runs is recorded; forgets what was.
void start_trace();
/// Returns what ran since start_trace, in the order it ran in, and stops recording.
std::vector<Trace> take_trace();

/// Returns how often the host called what waits for a device, or may, since the last reset: by function, with a word
/// where it is not the whole function that waits. It counts whether or not there was something to wait for. Besides the
/// calls that are made to wait: synchronous copies and sets, copies that involve memory that is not pinned or join two
/// places of the host, getting memory (pinned, too) and giving it back; and an event or a stream that has not got so
/// far when it is asked, which who asks in a loop waits for.
std::map<std::string, std::size_t> host_waits();
/// Returns how often each function of the API was called since the last reset.
std::map<std::string, std::size_t> calls();
/// Returns the devices on which the process has had a context since the last reset: those that threads chose, and
/// device 0 where a thread that chose none called what needs one. Such a call throws Error once any thread has chosen
/// another device: on a machine with several cards it would take half a gigabyte of a card that is not its rank's.
std::set<int> contexts();
/// Returns how many pieces of work the process ever gave to streams, and how many of them ran.
std::size_t work_given();
std::size_t work_done();
/// Returns how much work the process ever gave to a default stream, with which others are ordered by accident, if at
/// all.
std::size_t default_stream_work();

/// What a thread tells another: an arrival at an mbarrier, or a step of a counter (add_release).
enum class Signal { arrival, release };
/// The `nth` signal from now (1: the next) is lost, as by a fault of the program: who waits for it waits for ever. 0:
/// none is. A reset leaves it as it is.
void lose(Signal signal, int nth);

/// The `nth` call from now (1: the next) of the API function of this name, as "cudaMalloc", returns `error` and does
/// nothing.
void fail_call(const std::string& function, int nth, cudaError_t error);
/// From now on every call that concerns this device returns `error`, as after a fault that only a new process cures.
void fail_device(int device, cudaError_t error);

/// Forgets everything: streams and their work, events, allocations (which it frees), settings, failures, traces. No
/// other thread may be inside of the emulator.
void reset();

}  // namespace cuda_emulator
