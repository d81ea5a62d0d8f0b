#include "train/engine/computation.h"

#include "framework/config/config_problems.h"
#include "framework/config/training_config.h"
#include "framework/device.h"
#include "framework/error.h"

namespace ringtrain {

void choose_computation(const std::string& device, const std::string& dtype, TrainingConfig& training) {
  bool known = dtype.empty();
  for (const DType type : {DType::float32, DType::float64, DType::bfloat16}) {
    if (dtype != name_of(type)) continue;
    training.dtype = type;
    known = true;
  }
  if (!known) fail(ExitCode::usage, "--dtype {}: must be float32, float64 or bfloat16", excerpt(dtype));
  if (device != "auto" && device != "cpu" && device != "cuda") {
    fail(ExitCode::usage, "--device {}: must be cpu, cuda or auto", excerpt(device));
  }
  if (device == "auto") {
    if (!built_with_cuda) training.device = Device::Kind::cpu;
  } else {
    training.device = device == "cuda" ? Device::Kind::cuda : Device::Kind::cpu;
  }
  if (training.device == Device::Kind::cuda && !built_with_cuda) {
    fail(ExitCode::usage, "--device cuda: this program was built without CUDA; build it with cmake --preset cuda");
  }
  if (training.device == Device::Kind::cuda && training.dtype == DType::float64) {
    fail(ExitCode::usage, "--device cuda: float64, the checkpoint's training.dtype or --dtype, is for cpu alone");
  }
  training.offload = Offload::none;
}

}  // namespace ringtrain
