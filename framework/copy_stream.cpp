#include "framework/copy_stream.h"

#include <cstring>

#if RINGTRAIN_CUDA
#include "framework/cuda/context.h"
#include "framework/cuda/current_device.h"
#include "framework/cuda/event.h"
#include "framework/cuda/timeline.h"
#endif

namespace ringtrain {

#if RINGTRAIN_CUDA

namespace {

void make_wait(cudaStream_t stream, const CopyStream::Event& event) {
  if (event) static_cast<const cuda::Event*>(event.get())->make_wait(stream);
}

}  // namespace

/// The stream on which the copies run.
struct CopyStream::Cuda {
  explicit Cuda(int device) {
    cuda::use_device(device);
    stream = cuda::make_urgent_stream("making a stream for copies");
  }
  ~Cuda() {
    cuda::ignore(cudaStreamSynchronize(stream));  // the memory of a pending copy may be freed next
    cuda::ignore(cudaStreamDestroy(stream));
  }
  Cuda(const Cuda&) = delete;
  Cuda& operator=(const Cuda&) = delete;
  cudaStream_t stream = nullptr;
};

#endif

void CopyStream::set_stream(Stream& stream) {
  stream_ = &stream;
#if RINGTRAIN_CUDA
  if (stream.on_cuda()) cuda_ = std::make_shared<Cuda>(stream.cuda().device());
#endif
}

CopyStream::Event CopyStream::copy(const TensorView& to, const ConstTensorView& from,
                                   [[maybe_unused]] const Event& ready, [[maybe_unused]] const Event& free,
                                   [[maybe_unused]] const Label& label) {
  ensure(to.bytes() == from.bytes(), "a copy joins tensors of one size");
#if RINGTRAIN_CUDA
  if (cuda_) {
    make_wait(cuda_->stream, ready);
    make_wait(cuda_->stream, free);
    const auto give = [&] {
      cuda::check(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDefault, cuda_->stream),
                  "copying during the GPU's work");
    };
    if (cuda::Timeline* const timeline = stream_->cuda().timeline()) {
      timeline->transfer(
          cuda_->stream, label.name,
          {{"layer", label.layer}, {"hop", label.hop}, {"bytes", static_cast<std::int64_t>(from.bytes())}}, give);
    } else {
      give();
    }
    return cuda::record_event(cuda_->stream);
  }
#endif
  if (from.bytes() > 0) std::memcpy(to.data, from.data, from.bytes());
  return {};
}

void CopyStream::wait([[maybe_unused]] const Event& event) const {
#if RINGTRAIN_CUDA
  if (cuda_) make_wait(stream_->cuda().stream(), event);
#endif
}

}  // namespace ringtrain
