// The state of the runtime, and the functions by which tests set it.
#include "api/runtime.h"

#include <array>

#include "api/settings.h"
#include "nccl/nccl_communicators.h"

namespace cuda_emulator {

namespace {

std::array<int, 2> until_lost{};  // by Signal; guarded by the runtime's lock, which the thread that runs a kernel holds

/// The runtime and the settings, locked until the end of a statement.
class Locked {
 public:
  Runtime* operator->() const { return &runtime(); }
  Settings& settings() const { return cuda_emulator::settings(); }

 private:
  std::lock_guard<std::mutex> lock_{runtime().mutex};
};

}  // namespace

bool lost(Signal signal) {
  int& left = until_lost[static_cast<std::size_t>(signal)];
  return left > 0 && --left == 0;
}

Runtime::Runtime() : devices(devices_of_environment()), fault(fault_of_environment()) {
  settings();
}

Runtime& runtime() {
  static auto& instance = *new Runtime;  // outlives all destructors that call it
  return instance;
}

int& current_device() {
  static thread_local int device = 0;
  return device;
}

bool& device_chosen() {
  static thread_local bool chosen = false;
  return chosen;
}

cudaError_t& last_error() {
  static thread_local cudaError_t error = cudaSuccess;
  return error;
}

void Runtime::clear() {
  settings() = settings_of_environment();
  nccl::forget_all();
  streams.clear();
  handles.clear();
  events.clear();
  memory.release_all();
  shared_bytes.clear();
  loaded.clear();
  failures.clear();
  failed_devices.clear();
  peer_accesses.clear();
  contexts.clear();
  devices_chosen = false;
  calls.clear();
  host_waits.clear();
  current_device() = 0;
  device_chosen() = false;
  last_error() = cudaSuccess;
}

void Runtime::load(const std::string& code, Streams::Lock& lock) {
  if (loaded.emplace(current_device(), code).second) wait_as_loading_does(lock);
}

void Runtime::wait_as_loading_does(Streams::Lock& lock) {
  if (!settings().loading_waits) return;
  for (int device = 0; device < devices.count; ++device) streams.finish_device(device, lock);
}

std::shared_ptr<Stream> Runtime::stream(cudaStream_t handle) {
  if (reinterpret_cast<std::uintptr_t>(handle) <= 1) return streams.default_stream(current_device());
  const auto found = handles.find(reinterpret_cast<Stream*>(handle));
  return found == handles.end() ? nullptr : found->second;
}

CUevent_st* Runtime::event(cudaEvent_t handle) {
  const auto found = events.find(handle);
  return found == events.end() ? nullptr : found->second.get();
}

void Runtime::make_context(const std::string& function) {
  static const std::set<std::string> without_context{
      "cudaGetDeviceCount",
      "cudaGetDeviceProperties",
      "cudaDeviceGetAttribute",
      "cudaDeviceCanAccessPeer",
      "cudaDriverGetVersion",
      "cudaRuntimeGetVersion",
      "cudaGetDriverEntryPointByVersion",
      "cudaSetDevice"};  // which records it itself, once it knows that the device exists
  if (without_context.contains(function)) return;
  if (!device_chosen() && devices_chosen) {
    throw Error(function +
                ": this thread has chosen no device, but others have: it makes a context on device 0, whose memory is "
                "another's; call cudaSetDevice first");
  }
  contexts.insert(current_device());
}

cudaError_t Runtime::failure(const char* function) {
  if (const auto failed = failed_devices.find(current_device()); failed != failed_devices.end()) return failed->second;
  if (fault && fault->device == current_device() && fault->function == function && --fault->calls == 0) {
    return failed_devices[fault->device] = cudaErrorECCUncorrectable;
  }
  const auto [begin, end] = failures.equal_range(function);
  cudaError_t error = cudaSuccess;
  for (auto at = begin; at != end;) {
    if (--at->second.calls == 0) {
      error = at->second.error;
      at = failures.erase(at);
    } else {
      ++at;
    }
  }
  return error;
}

int physical_device(int device) {
  return runtime().devices.first + device;
}

std::size_t largest_shared_bytes() {
  const int capability = runtime().devices.compute_capability;
  const std::size_t kibibytes = capability >= 90 ? 227 : capability == 86 || capability == 89 ? 99 : 163;
  return kibibytes * 1024;
}

// --- cuda_emulator.h -----------------------------------------------------------------------------------------------

void set_devices(const Devices& devices) {
  reset();
  const std::lock_guard lock(runtime().mutex);
  runtime().devices = devices;
}

int peer_accesses() {
  return static_cast<int>(Locked()->peer_accesses.size());
}

void set_thread_order(ThreadOrder order, std::uint64_t seed) {
  const std::lock_guard lock(runtime().mutex);
  settings().threads = order;
  settings().threads_seed = seed;
}

void set_stream_order(StreamOrder order, std::uint64_t seed) {
  const std::lock_guard lock(runtime().mutex);
  settings().streams = order;
  settings().streams_seed = seed;
  runtime().streams.seed(seed);
}

void set_copy_landing(CopyLanding landing) {
  Locked().settings().copies = landing;
}

void set_blas_refusal(BlasRefusal refusal) {
  Locked().settings().blas_refusal = refusal;
}

void set_proxy_checks(bool on) {
  Locked().settings().proxies = on;
}

void set_loading_waits(bool on) {
  Locked().settings().loading_waits = on;
}

void set_late_event_waits(std::chrono::milliseconds late) {
  Locked().settings().late_event_waits = late;
}

void lose(Signal signal, int nth) {
  const std::lock_guard lock(runtime().mutex);
  until_lost[static_cast<std::size_t>(signal)] = nth;
}

void set_durations(const Durations& durations) {
  Locked().settings().durations = durations;
}

void start_trace() {
  const std::lock_guard lock(runtime().mutex);
  runtime().streams.tracing = true;
  runtime().streams.trace.clear();
}

std::vector<Trace> take_trace() {
  const std::lock_guard lock(runtime().mutex);
  runtime().streams.tracing = false;
  return std::exchange(runtime().streams.trace, {});
}

std::map<std::string, std::size_t> host_waits() {
  return Locked()->host_waits;
}

std::map<std::string, std::size_t> calls() {
  return Locked()->calls;
}

std::set<int> contexts() {
  return Locked()->contexts;
}

std::size_t work_given() {
  return Locked()->streams.given;
}

std::size_t work_done() {
  return Locked()->streams.finished;
}

std::size_t default_stream_work() {
  return Locked()->streams.default_work;
}

void fail_call(const std::string& function, int nth, cudaError_t error) {
  Locked()->failures.insert({function, {nth, error}});
}

void fail_device(int device, cudaError_t error) {
  Locked()->failed_devices[device] = error;
}

void reset() {
  const std::lock_guard lock(runtime().mutex);
  runtime().devices = devices_of_environment();
  runtime().clear();
}

}  // namespace cuda_emulator
