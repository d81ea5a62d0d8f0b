// What the emulator's tests share: a launch in one line, device arrays, and a fresh emulator in each test.
#pragma once

#include <cuda_bf16.h>
#include <cuda_emulator.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#define EXPECT_OK(call) EXPECT_EQ(call, cudaSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, cudaSuccess)

class EmulatorTest : public testing::Test {
 protected:
  void SetUp() override { cuda_emulator::reset(); }
  void TearDown() override { cuda_emulator::reset(); }
};

template <class... Params, class... Args>
cudaError_t launch_on(cudaStream_t stream, void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes,
                      Args&&... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}

/// Launches on the default stream and waits.
template <class... Params, class... Args>
cudaError_t run(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes, Args&&... args) {
  const cudaError_t error = launch_on(nullptr, kernel, grid, block, shared_bytes, std::forward<Args>(args)...);
  return error == cudaSuccess ? cudaDeviceSynchronize() : error;
}

/// Returns the message of the Error that body() throws; empty if it does not throw one.
template <class Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const cuda_emulator::Error& error) {
    return error.what();
  }
  return {};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::uint16_t bits_of(float x) {
  return __nv_bfloat16_raw(__float2bfloat16_rn(x)).x;
}

/// n elements of device memory.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t n) : size_(n) {
    if (cudaMalloc(&data_, n * sizeof(T)) != cudaSuccess) throw std::bad_alloc();
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> values(size_);
    cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};
