// The host API's streams, events and host functions.
#include <chrono>
#include <thread>
#include <utility>

#include "api/runtime.h"
#include "api/settings.h"
#include "cuda_runtime_api.h"

using cuda_emulator::call;
using cuda_emulator::current_device;
using cuda_emulator::Runtime;
using cuda_emulator::Stream;
using cuda_emulator::Trace;
using Lock = cuda_emulator::Streams::Lock;

namespace {

thread_local bool waits_for_streams = false;  // whether the thread ever has: then it is not a mere observer

/// Lets other threads run before this one reaches an event (set_late_event_waits).
void come_late(Lock& lock) {
  const auto late = cuda_emulator::settings().late_event_waits;
  if (late.count() == 0 || waits_for_streams) return;
  lock.unlock();
  std::this_thread::sleep_for(late);
  lock.lock();
}

cudaError_t create_stream(Runtime& state, cudaStream_t* handle, unsigned flags) {
  if (handle == nullptr || flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
  auto stream = state.streams.create(current_device());
  *handle = reinterpret_cast<cudaStream_t>(stream.get());
  state.handles[stream.get()] = std::move(stream);
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call(__func__, [&](Runtime& state, Lock&) { return create_stream(state, stream, flags); });
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return call(__func__, [&](Runtime& state, Lock&) { return create_stream(state, stream, flags); });
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call(__func__, [&](Runtime&, Lock&) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call(__func__, [&](Runtime& state, Lock&) {
    const auto found = state.handles.find(reinterpret_cast<Stream*>(stream));
    if (found == state.handles.end()) return cudaErrorInvalidResourceHandle;
    state.streams.destroy(found->second);
    state.handles.erase(found);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call(__func__, [&](Runtime& state, Lock& lock) {
    const auto stream = state.stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    waits_for_streams = true;
    ++state.host_waits["cudaStreamSynchronize"];
    state.streams.finish(stream, lock);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t event_handle, unsigned) {
  return call(__func__, [&](Runtime& state, Lock& lock) {
    const auto stream = state.stream(stream_handle);
    const CUevent_st* event = state.event(event_handle);
    if (!stream || event == nullptr) return cudaErrorInvalidResourceHandle;
    if (event->record) state.streams.add(stream, {Trace::Kind::wait, "wait", 0, {}, event->record}, lock);
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* argument) {
  return call(__func__, [&](Runtime& state, Lock& lock) {
    const auto stream = state.stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (function == nullptr) return cudaErrorInvalidValue;
    state.streams.add(stream, {Trace::Kind::host_function, "host function", 0, [=] { function(argument); }}, lock);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  return call(__func__, [&](Runtime& state, Lock&) {
    if (handle == nullptr) return cudaErrorInvalidValue;
    auto event = std::make_unique<CUevent_st>();
    event->device = current_device();
    event->timing = (flags & cudaEventDisableTiming) == 0;
    *handle = event.get();
    state.events[*handle] = std::move(event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event_handle, cudaStream_t stream_handle) {
  return call(__func__, [&](Runtime& state, Lock& lock) {
    const auto stream = state.stream(stream_handle);
    CUevent_st* event = state.event(event_handle);
    if (!stream || event == nullptr || event->device != stream->device) return cudaErrorInvalidResourceHandle;
    event->record = state.streams.add_record(stream, lock);
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return call(__func__, [&](Runtime& state, Lock& lock) {
    come_late(lock);
    const CUevent_st* event = state.event(handle);
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    ++state.host_waits["cudaEventSynchronize"];
    if (const auto record = event->record) state.streams.finish(record, lock);
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return call(__func__, [&](Runtime& state, Lock& lock) {
    come_late(lock);
    const CUevent_st* event = state.event(handle);
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    const auto record = event->record;
    if (!record || record->done) return cudaSuccess;
    ++state.host_waits["cudaEventQuery: not ready"];
    state.streams.nudge(record->stream, lock);
    return cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin_handle, cudaEvent_t end_handle) {
  return call(__func__, [&](Runtime& state, Lock&) {
    const CUevent_st* begin = state.event(begin_handle);
    const CUevent_st* end = state.event(end_handle);
    if (begin == nullptr || end == nullptr || !begin->timing || !end->timing || !begin->record || !end->record) {
      return cudaErrorInvalidResourceHandle;
    }
    if (!begin->record->done || !end->record->done) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(end->record->when - begin->record->when).count();
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call(__func__, [&](Runtime& state, Lock&) {
    return state.events.erase(event) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle;
  });
}
