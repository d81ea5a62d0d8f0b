// Generation on a GPU: greedy texts of random models in float32 equal the CPU's, on one rank and on rings that share a
// card. In bfloat16, each token is as good as the likeliest, except for the rounding of a logit.
#include <set>

#include "tests/support/gpu.h"
#include "tests/train/generation/generation_fixture.h"

namespace ringtrain::testing {
namespace {

class GpuGeneration : public OnGpu<GenerationTest> {
 protected:
  static Config on_gpu(Config config, DType dtype) {
    config.training.device = Device::Kind::cuda;
    config.training.dtype = dtype;
    config.mesh.backend = Backend::threads;
    return config;
  }
};

TEST_F(GpuGeneration, SaysInFloat32WhatTheCpuSays) {
  for (const auto& [name, settings] : common_models) {
    SCOPED_TRACE(name);
    Config config = model(settings);
    config.training.dtype = DType::float32;
    const GenerationRequest request{.prompt = random_prompt(20, 1), .new_tokens = 40};
    const Tokens cpu = generated(config, request);
    ASSERT_EQ(cpu.size(), 40u);
    EXPECT_GT(std::set<std::int32_t>(cpu.begin(), cpu.end()).size(), 1u) << "a text of one token shows little";
    EXPECT_EQ(generated(on_gpu(config, DType::float32), request), cpu);
    EXPECT_EQ(generated(on_ring(on_gpu(config, DType::float32), 3), request), cpu) << "a ring of 3 on one card";
  }
}

TEST_F(GpuGeneration, IsGreedyInBfloat16) {
  for (const auto& [name, settings] : common_models) {
    SCOPED_TRACE(name);
    const Config config = model(settings);
    const GenerationRequest request{.prompt = random_prompt(20, 2), .new_tokens = 40};
    const Tokens tokens = generated(on_ring(on_gpu(config, DType::bfloat16), 2), request);
    ASSERT_EQ(tokens.size(), 40u);
    expect_greedy(config, request.prompt, tokens, 0.02);
  }
}

TEST_F(GpuGeneration, OfACheckpointRunsWhereTheFlagsSay) {
  run(tiny(write_tokens("bytes.h5", {.vocab_size = 257}),
           {"training.steps=1", "model.vocab_size=257", "model.initializer_range=0.4", "training.device=cuda",
            "training.dtype=bfloat16"}),
      "run");
  GenerationOptions options;
  options.checkpoint = at("run");
  options.tokens = {'a', 'b', 'c'};
  options.max_new_tokens = 12;
  const auto said = [&](const std::string& device, const std::string& dtype) {
    options.device = device;
    options.dtype = dtype;
    return generated_text(options);
  };
  EXPECT_FALSE(said("auto", "").empty());
  EXPECT_EQ(said("cuda", "float32"), said("cpu", "float32"));
  expect_error_holding(ExitCode::usage, {"float64"}, [&] { said("cuda", "float64"); });  // only on a CPU
}

}  // namespace
}  // namespace ringtrain::testing
