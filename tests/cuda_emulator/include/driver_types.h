// Types and constants of the CUDA runtime API, with CUDA's names and values.
#pragma once

#include <cstddef>

#include "vector_types.h"

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaHostFn_t = void (*)(void*);

#define CUDART_CB

// Every error the emulator knows: name, value, text.
// clang-format off
#define CUDA_EMULATOR_ERRORS(error) \
  error(cudaSuccess, 0, "no error") \
  error(cudaErrorInvalidValue, 1, "invalid argument") \
  error(cudaErrorMemoryAllocation, 2, "out of memory") \
  error(cudaErrorInvalidConfiguration, 9, "invalid configuration argument") \
  error(cudaErrorDevicesUnavailable, 46, "CUDA-capable device(s) is/are busy or unavailable") \
  error(cudaErrorInvalidDeviceFunction, 98, "invalid device function") \
  error(cudaErrorNoDevice, 100, "no CUDA-capable device is detected") \
  error(cudaErrorInvalidDevice, 101, "invalid device ordinal") \
  error(cudaErrorNoKernelImageForDevice, 209, "no kernel image is available for execution on the device") \
  error(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error encountered") \
  error(cudaErrorPeerAccessUnsupported, 217, "peer access is not supported between these two devices") \
  error(cudaErrorUnsupportedPtxVersion, 222, "the provided PTX was compiled with an unsupported toolchain.") \
  error(cudaErrorOperatingSystem, 304, "OS call failed or operation not supported on this OS") \
  error(cudaErrorInvalidResourceHandle, 400, "invalid resource handle") \
  error(cudaErrorNotReady, 600, "device not ready") \
  error(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered") \
  error(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled") \
  error(cudaErrorTooManyPeers, 711, "peer mapping resources exhausted") \
  error(cudaErrorMisalignedAddress, 716, "misaligned address") \
  error(cudaErrorLaunchFailure, 719, "unspecified launch failure") \
  error(cudaErrorSystemNotReady, 802, "system not yet initialized") \
  error(cudaErrorSystemDriverMismatch, 803, "system has unsupported display driver / cuda driver combination")
// clang-format on

#define CUDA_EMULATOR_ERROR(name, value, text) name = value,
enum cudaError { CUDA_EMULATOR_ERRORS(CUDA_EMULATOR_ERROR) };
#undef CUDA_EMULATOR_ERROR
using cudaError_t = cudaError;

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

struct cudaFuncAttributes {
  int numRegs;
};

enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };

struct cudaUUID_t {
  char bytes[16];
};

struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  std::size_t totalGlobalMem;
  int major;
  int minor;
  int multiProcessorCount;
};

enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess = 0, cudaDriverEntryPointSymbolNotFound = 1 };
#define cudaEnableDefault 0x0

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
};

#define cudaStreamNonBlocking 0x01
#define cudaEventDefault 0x00
#define cudaEventDisableTiming 0x02
#define cudaHostAllocPortable 0x01
