#include "framework/side_copies.h"

#include <cstring>

#if RINGTRAIN_CUDA
#include "framework/cuda/context.h"
#include "framework/cuda/event.h"
#include "framework/cuda/timeline.h"
#endif

namespace ringtrain {

#if RINGTRAIN_CUDA

namespace {

SideCopies::Mark mark_of(cudaStream_t stream) {
  auto event = std::make_shared<cuda::Event>();
  event->record(stream);
  return event;
}

void hold_back(cudaStream_t stream, const SideCopies::Mark& mark) {
  if (mark) static_cast<const cuda::Event*>(mark.get())->hold_back(stream);
}

}  // namespace

/// The stream on which the copies run.
struct SideCopies::Cuda {
  explicit Cuda(int device) {
    cuda::check(cudaSetDevice(device), "choosing the GPU");
    stream = cuda::make_urgent_stream("making a stream for copies");
  }
  ~Cuda() {
    cuda::ignore(cudaStreamSynchronize(stream));  // the memory of a copy under way may go next
    cuda::ignore(cudaStreamDestroy(stream));
  }
  Cuda(const Cuda&) = delete;
  Cuda& operator=(const Cuda&) = delete;
  cudaStream_t stream = nullptr;
};

#else
struct SideCopies::Cuda {};
#endif

SideCopies::SideCopies() = default;
SideCopies::~SideCopies() = default;
SideCopies::SideCopies(SideCopies&&) noexcept = default;
SideCopies& SideCopies::operator=(SideCopies&&) noexcept = default;

void SideCopies::order_with(Stream& stream) {
  stream_ = &stream;
#if RINGTRAIN_CUDA
  if (stream.on_cuda()) cuda_ = std::make_unique<Cuda>(stream.cuda().device());
#endif
}

SideCopies::Mark SideCopies::mark() const {
#if RINGTRAIN_CUDA
  if (cuda_) return mark_of(stream_->cuda().stream());
#endif
  return {};
}

SideCopies::Mark SideCopies::copy(const TensorView& to, const TensorView& from, [[maybe_unused]] const Mark& ready,
                                  [[maybe_unused]] const Mark& free, [[maybe_unused]] const Label& label) {
  ensure(to.bytes() == from.bytes(), "a copy joins tensors of one size");
#if RINGTRAIN_CUDA
  if (cuda_) {
    hold_back(cuda_->stream, ready);
    hold_back(cuda_->stream, free);
    const auto give = [&] {
      cuda::check(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDefault, cuda_->stream),
                  "copying beside the GPU's work");
    };
    if (cuda::Timeline* const timeline = stream_->cuda().timeline()) {
      timeline->transfer(
          cuda_->stream, label.name,
          {{"layer", label.layer}, {"hop", label.hop}, {"bytes", static_cast<std::int64_t>(from.bytes())}}, give);
    } else {
      give();
    }
    return mark_of(cuda_->stream);
  }
#endif
  if (from.bytes() > 0) std::memcpy(to.data, from.data, from.bytes());
  return {};
}

void SideCopies::follow([[maybe_unused]] const Mark& mark) const {
#if RINGTRAIN_CUDA
  if (cuda_) hold_back(stream_->cuda().stream(), mark);
#endif
}

}  // namespace ringtrain
