#include "bench/gpu/timing.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>

#include "framework/cuda/check.h"
#include "framework/cuda/context.h"

namespace ringtrain::bench {

namespace {

/// An event that knows when it was passed.
class Moment {
 public:
  Moment() { cuda::check(cudaEventCreate(&event_), "making an event"); }
  ~Moment() { cuda::ignore(cudaEventDestroy(event_)); }
  Moment(const Moment&) = delete;
  Moment& operator=(const Moment&) = delete;

  void record(Stream& stream) { cuda::check(cudaEventRecord(event_, stream.cuda().stream()), "recording an event"); }
  double seconds_since(const Moment& begin) const {
    float milliseconds = 0;
    cuda::check(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "reading the time between two events");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

Times summary(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {seconds[(seconds.size() - 1) / 2], seconds.front(), seconds.back(), static_cast<int>(seconds.size())};
}

Times time_on_stream(Stream& stream, const Repeat& repeat, const std::function<void(int)>& body) {
  int call = 0;
  for (int i = 0; i < repeat.warm_up; ++i) body(call++);
  stream.synchronize();
  std::vector<Moment> begins(static_cast<std::size_t>(repeat.repetitions)), ends(begins.size());
  for (std::size_t i = 0; i < begins.size(); ++i) {
    begins[i].record(stream);
    body(call++);
    ends[i].record(stream);
  }
  stream.synchronize();
  std::vector<double> seconds;
  for (std::size_t i = 0; i < begins.size(); ++i) seconds.push_back(ends[i].seconds_since(begins[i]));
  return summary(std::move(seconds));
}

double wall_seconds(Stream& stream, const std::function<void()>& body) {
  stream.synchronize();
  const auto begin = std::chrono::steady_clock::now();
  body();
  stream.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace ringtrain::bench
