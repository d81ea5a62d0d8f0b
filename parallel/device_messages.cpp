#include "parallel/device_messages.h"

#if RINGTRAIN_CUDA
#include "framework/cuda/event.h"
#endif

namespace ringtrain {

#if RINGTRAIN_CUDA

namespace {

const cuda::Event& event_of(const DeviceMessages::Mark& mark) {
  return *static_cast<const cuda::Event*>(mark.get());
}

DeviceMessages::Mark mark_of(cudaStream_t stream) {
  auto event = std::make_shared<cuda::Event>();
  event->record(stream);
  return event;
}

}  // namespace

/// The stream on which this rank's copies run.
struct DeviceMessages::Copies {
  Copies() { cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream for messages"); }
  ~Copies() {
    cuda::ignore(cudaStreamSynchronize(stream));  // the buffers of a copy under way may go next
    cuda::ignore(cudaStreamDestroy(stream));
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  cudaStream_t stream = nullptr;
};

void DeviceMessages::order_with(Stream& stream) {
  if (!stream.on_cuda()) return;
  stream_ = &stream;
  cuda::check(cudaSetDevice(stream.cuda().device()), "choosing the GPU");
  copies_ = std::make_unique<Copies>();
}

DeviceMessages::Mark DeviceMessages::mark() const {
  return mark_of(stream_->cuda().stream());
}

DeviceMessages::Mark DeviceMessages::copy(const TensorView& to, const TensorView& from, const Mark& sent,
                                          const Mark& free) {
  event_of(sent).hold_back(copies_->stream);
  event_of(free).hold_back(copies_->stream);
  cuda::check(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDefault, copies_->stream),
              "copying a message from one rank's GPU memory to another's");
  return mark_of(copies_->stream);
}

void DeviceMessages::follow(const Mark& mark) {
  event_of(mark).hold_back(stream_->cuda().stream());
}

#else

struct DeviceMessages::Copies {};

void DeviceMessages::order_with(Stream&) {}
DeviceMessages::Mark DeviceMessages::mark() const {
  return {};
}
DeviceMessages::Mark DeviceMessages::copy(const TensorView&, const TensorView&, const Mark&, const Mark&) {
  return {};
}
void DeviceMessages::follow(const Mark&) {}

#endif

DeviceMessages::DeviceMessages() = default;
DeviceMessages::~DeviceMessages() = default;

}  // namespace ringtrain
