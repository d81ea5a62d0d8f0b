#include "bench/gpu/timing.h"

#include <algorithm>
#include <chrono>

#include "framework/cuda/context.h"
#include "framework/cuda/event.h"

namespace ringtrain::bench {

Times summary(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {seconds[(seconds.size() - 1) / 2], seconds.front(), seconds.back()};
}

Times time_on_stream(Stream& stream, const Repeat& repeat, const std::function<void(int)>& body) {
  int call = 0;
  for (int i = 0; i < repeat.warm_up; ++i) body(call++);
  stream.synchronize();
  std::vector<cuda::Event> begins, ends;
  for (int i = 0; i < repeat.repetitions; ++i) {
    begins.emplace_back(cuda::Event::Timing::on);
    ends.emplace_back(cuda::Event::Timing::on);
  }
  for (std::size_t i = 0; i < begins.size(); ++i) {
    begins[i].record(stream.cuda().stream());
    body(call++);
    ends[i].record(stream.cuda().stream());
  }
  stream.synchronize();
  std::vector<double> seconds;
  for (std::size_t i = 0; i < begins.size(); ++i) seconds.push_back(ends[i].seconds_since(begins[i]).value());
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
