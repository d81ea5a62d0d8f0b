// Types and constants of the CUDA runtime API, with CUDA's names and values.
#pragma once

#include <cstddef>

#include "vector_types.h"

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaHostFn_t = void (*)(void*);

#define CUDART_CB

// Every error the emulator knows: name, value, text.
#define CUDA_EMULATOR_ERRORS(error)                                                                                    \
  error(cudaSuccess, 0, "no error") error(cudaErrorInvalidValue, 1, "invalid argument") error(                         \
      cudaErrorMemoryAllocation, 2,                                                                                    \
      "out of memory") error(cudaErrorInitializationError, 3,                                                          \
                             "initialization error") error(cudaErrorInvalidConfiguration, 9,                           \
                                                           "invalid configuration argument")                           \
      error(cudaErrorInvalidDevicePointer, 17, "invalid device pointer") error(                                        \
          cudaErrorInvalidMemcpyDirection, 21,                                                                         \
          "invalid copy direction for memcpy") error(cudaErrorInsufficientDriver, 35,                                  \
                                                     "CUDA driver version is insufficient for CUDA runtime version")   \
          error(cudaErrorDevicesUnavailable, 46, "CUDA-capable device(s) is/are busy or unavailable") error(           \
              cudaErrorInvalidDeviceFunction, 98,                                                                      \
              "invalid device function") error(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")           \
              error(cudaErrorInvalidDevice, 101, "invalid device ordinal") error(                                      \
                  cudaErrorNoKernelImageForDevice, 209, "no kernel image is available for execution on the device")    \
                  error(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error encountered") error(                  \
                      cudaErrorPeerAccessUnsupported, 217, "peer access is not supported between these two devices")   \
                      error(cudaErrorUnsupportedPtxVersion, 222,                                                       \
                            "the provided PTX was compiled with an unsupported toolchain.")                            \
                          error(cudaErrorOperatingSystem, 304, "OS call failed or operation not supported on this OS") \
                              error(cudaErrorInvalidResourceHandle, 400, "invalid resource handle") error(             \
                                  cudaErrorSymbolNotFound, 500, "named symbol not found")                              \
                                  error(cudaErrorNotReady, 600, "device not ready") error(                             \
                                      cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")        \
                                      error(cudaErrorLaunchOutOfResources, 701,                                        \
                                            "too many resources requested for launch")                                 \
                                          error(cudaErrorLaunchTimeout, 702,                                           \
                                                "the launch timed out and was terminated")                             \
                                              error(cudaErrorPeerAccessAlreadyEnabled, 704,                            \
                                                    "peer access is already enabled")                                  \
                                                  error(cudaErrorTooManyPeers, 711,                                    \
                                                        "peer mapping resources exhausted")                            \
                                                      error(cudaErrorMisalignedAddress, 716,                           \
                                                            "misaligned address") error(cudaErrorLaunchFailure, 719,   \
                                                                                        "unspecified launch failure")  \
                                                          error(cudaErrorNotPermitted, 800, "operation not permitted") \
                                                              error(cudaErrorNotSupported, 801,                        \
                                                                    "operation not supported")                         \
                                                                  error(cudaErrorSystemNotReady, 802,                  \
                                                                        "system not yet initialized")                  \
                                                                      error(cudaErrorSystemDriverMismatch, 803,        \
                                                                            "system has unsupported display driver / " \
                                                                            "cuda driver combination")                 \
                                                                          error(cudaErrorUnknown, 999,                 \
                                                                                "unknown error")

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

enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
  cudaMemoryTypeManaged = 3
};

struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
};

enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9
};

struct cudaFuncAttributes {
  std::size_t sharedSizeBytes;
  std::size_t constSizeBytes;
  std::size_t localSizeBytes;
  int maxThreadsPerBlock;
  int numRegs;
  int ptxVersion;
  int binaryVersion;
  int maxDynamicSharedSizeBytes;
};

enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxBlockDimX = 2,
  cudaDevAttrMaxBlockDimY = 3,
  cudaDevAttrMaxBlockDimZ = 4,
  cudaDevAttrMaxGridDimX = 5,
  cudaDevAttrMaxGridDimY = 6,
  cudaDevAttrMaxGridDimZ = 7,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMaxRegistersPerBlock = 12,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrConcurrentKernels = 31,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrAsyncEngineCount = 40,
  cudaDevAttrUnifiedAddressing = 41,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrReservedSharedMemoryPerBlock = 111
};

struct cudaUUID_t {
  char bytes[16];
};

struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  std::size_t totalGlobalMem;
  std::size_t sharedMemPerBlock;
  int regsPerBlock;
  int warpSize;
  int maxThreadsPerBlock;
  int maxThreadsDim[3];
  int maxGridSize[3];
  int major;
  int minor;
  int multiProcessorCount;
  int l2CacheSize;
  int maxThreadsPerMultiProcessor;
  std::size_t sharedMemPerMultiprocessor;
  std::size_t sharedMemPerBlockOptin;
  std::size_t reservedSharedMemPerBlock;
  int pciBusID;
  int pciDeviceID;
  int pciDomainID;
  int asyncEngineCount;
  int unifiedAddressing;
};

enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess = 0,
  cudaDriverEntryPointSymbolNotFound = 1,
  cudaDriverEntryPointVersionNotSufficent = 2
};
#define cudaEnableDefault 0x0

enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore = 0,
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
  cudaLaunchAttributePriority = 8
};

union cudaLaunchAttributeValue {
  char pad[64];
  struct {
    unsigned x, y, z;
  } clusterDim;
  int programmaticStreamSerializationAllowed;
  int priority;
};

struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  char pad[8 - sizeof(cudaLaunchAttributeID)];
  cudaLaunchAttributeValue val;
};

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

#define cudaStreamDefault 0x00
#define cudaStreamNonBlocking 0x01
#define cudaEventDefault 0x00
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02
#define cudaHostAllocDefault 0x00
#define cudaHostAllocPortable 0x01
#define cudaHostAllocMapped 0x02
#define cudaHostAllocWriteCombined 0x04
