#include <cuda_runtime.h>
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <limits>

#include "bench/gpu/groups.h"
#include "bench/gpu/random_values.h"
#include "bench/gpu/timing.h"
#include "framework/cuda/check.h"
#include "framework/cuda/context.h"
#include "framework/system/compute_device.h"
#include "kernels/matmul.h"

namespace ringtrain::bench {

namespace {

std::string version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

/// Returns nvidia-smi's report of the card, "" if it is not installed: the state is reported as found, never changed.
std::string card_state() {
  std::FILE* const pipe = popen(
      "nvidia-smi --query-gpu=driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw,temperature.gpu "
      "--format=csv,noheader -i 0 2>/dev/null",
      "r");
  if (pipe == nullptr) return "";
  std::array<char, 512> line{};
  const bool read = std::fgets(line.data(), static_cast<int>(line.size()), pipe) != nullptr;
  pclose(pipe);
  std::string text = read ? line.data() : "";
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

void facts(Results& results) {
  const cuda::DeviceFacts card = cuda::facts_of(0);
  int driver = 0, runtime = 0;
  cuda::check(cudaDriverGetVersion(&driver), "asking for the version of the NVIDIA driver");
  cuda::check(cudaRuntimeGetVersion(&runtime), "asking for the version of the CUDA runtime");
  results.fact("GPU", card.name);
  results.fact("GPUs here", cuda::device_count());
  results.fact("compute capability", card.compute_capability);
  results.fact("multiprocessors", card.multiprocessors);
  results.fact("memory bytes", card.memory_bytes);
  results.fact("driver serves CUDA", version(driver));
  results.fact("runtime", version(runtime));
  results.fact("driver, clocks, power, temperature", card_state());
}

/// The rate of device-to-device copies, bytes read and bytes written.
void copies(Results& results, const Settings& settings, Allocator& allocator, Stream& stream) {
  const std::int64_t elements = settings.tiny ? 4096 : std::int64_t{1} << (settings.quick ? 28 : 30);
  const Tensor from = allocator.make(Tag::workspace, "copied", DType::float32, {elements});
  const Tensor to = allocator.make(Tag::workspace, "copy", DType::float32, {elements});
  RandomValues random(allocator, stream, DType::float32, 1, settings.tiny ? 1024 : 1 << 22);
  random.fill(from);
  const Times times = time_on_stream(stream, {}, [&](int) { copy(stream, to, from); });
  results.add({.group = "machine",
               .name = "device-to-device copy",
               .value = 2 * static_cast<double>(from.view().bytes()) / times.median * 1e-12,
               .unit = "TB/s",
               .parameters = {{"bytes", from.view().bytes()}},
               .note = "bytes read and bytes written"});
}

/// The three products of a linear layer; the forward at 8192^3 represents the card's rate.
void products(Results& results, const Settings& settings, Allocator& allocator, Stream& stream) {
  const std::int64_t n = settings.tiny ? 64 : 8192;
  const auto make = [&](const char* name, DType dtype) { return allocator.make(Tag::workspace, name, dtype, {n, n}); };
  const Tensor x = make("x", DType::bfloat16), w = make("w", DType::bfloat16), y = make("y", DType::bfloat16);
  const Tensor dw = make("dw", DType::float32);
  RandomValues random(allocator, stream, DType::bfloat16, 1, settings.tiny ? 1024 : 1 << 22);
  random.fill(x), random.fill(w);
  const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  const auto report = [&](const char* name, const TensorView& output, const auto& body) {
    const Times times = time_on_stream(stream, {}, [&](int) { body(); });
    results.check("machine", fmt::format("{}: its result has a NaN, or was not written", name),
                  is_written(allocator, stream, output));
    results.add({.group = "machine",
                 .name = name,
                 .value = flops / times.median * 1e-12,
                 .unit = "TFLOP/s",
                 .parameters = {{"n", n}, {"dtype", "bfloat16"}},
                 .note = ""});
  };
  const double poison = std::numeric_limits<double>::quiet_NaN();
  fill(stream, y, poison);
  report("matrix product forward", y, [&] { linear_forward(stream, y, x, w, {}); });
  fill(stream, y, poison);
  report("matrix product input gradient", y, [&] { linear_backward_input(stream, y, x, w, false); });
  fill(stream, dw, 0);
  report("matrix product weight gradient", dw,
         [&] { linear_backward_weight(stream, dw, {}, x, w, /*accumulate=*/true); });
}

}  // namespace

void machine_group(Results& results, const Settings& settings) {
  facts(results);
  ThreadPool pool(1);
  Allocator allocator(Device::cuda(0));
  ComputeDevice device(allocator, pool, nullptr);
  copies(results, settings, allocator, device.stream());
  products(results, settings, allocator, device.stream());
  results.fact("the same after the products", card_state());
}

}  // namespace ringtrain::bench
