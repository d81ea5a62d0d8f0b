// What tests of GPU kernels share. A kernel is called twice with the same numbers: in double on the CPU, and in its own
// dtypes on the GPU (or its emulator). A tensor of both is a Both. On the GPU, each is between guards; memory that will
// be overwritten begins as NaN, and so do the guards. Every call on the GPU runs twice with the same initial memory and
// must give the same bits.
#pragma once

#include <cuda_runtime.h>
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <list>
#include <memory>
#include <string>

#include "framework/allocator.h"
#include "framework/cuda/check.h"
#include "framework/cuda/context.h"
#include "tests/support/elements.h"
#include "tests/support/gpu.h"
#include "tests/support/kernel_harness.h"

namespace ringtrain::testing {

#if defined(RINGTRAIN_CUDA_EMULATED)
inline constexpr bool emulated = true;
#else
inline constexpr bool emulated = false;
#endif

/// Returns x as stored in dtype.
inline double as_held(double x, DType dtype) {
  if (dtype == DType::bfloat16) return BFloat16::rounded(static_cast<float>(x)).value();
  return dtype == DType::float32 ? static_cast<double>(static_cast<float>(x)) : x;
}

/// The root mean square and the largest magnitude of some errors.
struct ErrorSize {
  double square = 0, largest = 0;
  std::int64_t count = 0;
  void add(double error) {
    square += error * error;
    largest = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(largest, std::abs(error));
    ++count;
  }
  double rms() const { return count == 0 ? 0 : std::sqrt(square / static_cast<double>(count)); }
};

struct Both {
  TensorView cpu, gpu;
};

class GpuKernelTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    allocator_ = std::make_unique<Allocator>(Device::cuda(0));
    scratch_ = allocator_->make(Tag::workspace, "scratch", DType::uint8,
                                {static_cast<std::int64_t>(cuda::Context::scratch_bytes)});
    context_ = std::make_unique<cuda::Context>(0, scratch_);
    stream_ = std::make_unique<Stream>(context_.get(), Device::cuda(0), cpu_.pool, nullptr);
  }
  Stream& gpu() { return *stream_; }
  Stream& cpu() { return cpu_; }

  /// Releases all tensors so far, at the end of a case. on_gpu reads all of them, so the time of a test of many cases
  /// that kept them would grow with the square of their number. Occasionally prints that the test continues.
  void forget() {
    blocks_.clear();
    doubles_.clear();
    integers_.clear();
    ++cases_;
    if (const auto now = std::chrono::steady_clock::now(); now - said_ > std::chrono::seconds(3)) {
      said_ = now;
      fmt::print("             case {}\n", cases_);
      std::fflush(stdout);
    }
  }

  /// Returns a tensor of these values, rounded to dtype, for both; starts `skip` elements past a boundary of 256 bytes.
  Both values(const std::vector<double>& x, const Shape& shape, DType dtype, std::int64_t skip = 0) {
    Both both = output(shape, dtype, skip);
    std::vector<unsigned char> bytes(both.gpu.bytes());
    const TensorView held{bytes.data(), shape, dtype, Device::cpu()};
    for (std::int64_t i = 0; i < std::ssize(x); ++i) {
      set_element(held, i, x[i]);
      both.cpu.as<double>()[i] = element(held, i);
    }
    upload(both.gpu.data, bytes);
    return both;
  }
  Both random(const Shape& shape, DType dtype, std::uint64_t seed, double stddev = 1, std::int64_t skip = 0) {
    return values(random_vector<double>(shape.numel(), seed, stddev), shape, dtype, skip);
  }
  Both integers(const std::vector<std::int32_t>& x) {
    const Shape shape{static_cast<std::int64_t>(x.size())};
    Both both{{}, make(shape, DType::int32, 0)};
    both.cpu = view_of(*integers_.emplace(integers_.end(), x), shape);
    std::vector<unsigned char> bytes(both.gpu.bytes());
    if (!x.empty()) std::memcpy(bytes.data(), x.data(), bytes.size());
    upload(both.gpu.data, bytes);
    return both;
  }
  /// Returns a tensor of NaN.
  Both output(const Shape& shape, DType dtype, std::int64_t skip = 0) {
    auto& host = *doubles_.emplace(doubles_.end(), shape.numel(), std::nan(""));
    return {host_view(host.data(), shape), make(shape, dtype, skip)};
  }

  /// Calls call(stream, at) on the CPU and on the GPU, where at(both) is the tensor there; twice on the GPU, with the
  /// same initial memory, to compare the bits. Guards must not change.
  template <class Call>
  void on_both(Call&& call) {
    call(cpu(), [](const Both& both) { return both.cpu; });
    on_gpu([&] { call(gpu(), [](const Both& both) { return both.gpu; }); });
  }
  template <class Call>
  void on_gpu(Call&& call) {
    const auto before = memory();
    call();
    const auto after = memory();
    std::size_t index = 0;
    for (const Block& block : blocks_) {
      upload(block.all.view().data, before[index]);
      const auto is_guard = [](unsigned char byte) { return byte == poison; };
      EXPECT_TRUE(std::all_of(after[index].begin(), after[index].begin() + block.begin, is_guard) &&
                  std::all_of(after[index].begin() + block.end, after[index].end(), is_guard))
          << "written outside of tensor " << index;
      ++index;
    }
    call();
    EXPECT_TRUE(memory() == after) << "other bits the second time";
  }

  /// Returns the GPU's values, in double.
  std::vector<double> on_host(const TensorView& x) {
    std::vector<unsigned char> bytes = download(x.data, x.bytes());
    return elements(TensorView{bytes.data(), x.shape, x.dtype, Device::cpu()});
  }

  /// The GPU's tensor agrees with the CPU's double one. float32 and float64: max|difference| is at most tolerance *
  /// max|reference|. bfloat16: of the errors relative to the reference, the root mean square is at most 1.5 times, and
  /// the largest at most 2 times, those of the reference itself rounded to bfloat16; both with an allowance of 1e-6 *
  /// max|reference| for the errors of float32 arithmetic where rounding happens to be exact. rounded_before: the values
  /// to which a product was added, element by element, if it was rounded to bfloat16 first; that rounding is allowed in
  /// addition to the result's.
  void expect_agrees(const Both& both, const std::string& what, double tolerance = 1e-5,
                     const std::vector<double>& rounded_before = {}) {
    const std::vector<double> got = on_host(both.gpu);
    const std::vector<double> reference(both.cpu.as<double>(), both.cpu.as<double>() + both.cpu.numel());
    if (both.gpu.dtype != DType::bfloat16) {
      EXPECT_LE(relative_difference(got, reference), tolerance) << what;
      return;
    }
    ErrorSize error, allowed;
    double largest = 0;
    const auto rounding = [](double x) { return std::abs(as_held(x, DType::bfloat16) - x); };
    for (std::size_t i = 0; i < got.size(); ++i) {
      error.add(got[i] - reference[i]);
      allowed.add(rounding(reference[i]) + (rounded_before.empty() ? 0 : rounding(rounded_before[i])));
      largest = std::max(largest, std::abs(reference[i]));
    }
    EXPECT_LE(error.rms(), 1.5 * allowed.rms() + 1e-6 * largest) << what;
    EXPECT_LE(error.largest, 2 * allowed.largest + 1e-6 * largest) << what;
  }

 private:
  static constexpr unsigned char poison = 0xff;  // NaN in every floating type
  static constexpr std::int64_t guard = 256;
  struct Block {
    Tensor all;
    std::ptrdiff_t begin, end;  // of the tensor, in bytes
  };

  TensorView make(const Shape& shape, DType dtype, std::int64_t skip) {
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    const std::int64_t begin = guard + skip * size, end = begin + shape.numel() * size;
    blocks_.push_back({allocator_->make(Tag::workspace, "test", DType::uint8, {end + guard}), begin, end});
    TensorView view = blocks_.back().all;
    upload(view.data, std::vector<unsigned char>(view.bytes(), poison));
    view.data = static_cast<std::byte*>(view.data) + begin;
    view.shape = shape;
    view.dtype = dtype;
    return view;
  }
  void upload(void* to, const std::vector<unsigned char>& bytes) {
    if (bytes.empty()) return;
    cuda::check(cudaMemcpyAsync(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, context_->stream()), "upload");
    context_->synchronize();
  }
  std::vector<unsigned char> download(const void* from, std::size_t size) {
    std::vector<unsigned char> bytes(size);
    if (size > 0) {
      cuda::check(cudaMemcpyAsync(bytes.data(), from, size, cudaMemcpyDeviceToHost, context_->stream()), "download");
      context_->synchronize();
    }
    return bytes;
  }
  /// Returns the bytes of all tensors, including guards.
  std::vector<std::vector<unsigned char>> memory() {
    std::vector<std::vector<unsigned char>> all;
    for (const Block& block : blocks_) all.push_back(download(block.all.view().data, block.all.view().bytes()));
    return all;
  }

  CpuStream cpu_;
  std::unique_ptr<Allocator> allocator_;
  Tensor scratch_;
  std::unique_ptr<cuda::Context> context_;
  std::unique_ptr<Stream> stream_;
  std::list<Block> blocks_;
  std::int64_t cases_ = 0;
  std::chrono::steady_clock::time_point said_ = std::chrono::steady_clock::now();
  std::list<std::vector<double>> doubles_;
  std::list<std::vector<std::int32_t>> integers_;
};

/// The types that GPU kernels store.
inline constexpr DType storage_types[] = {DType::float32, DType::bfloat16};

}  // namespace ringtrain::testing
