// Attention on Hopper's own path (kernels/cuda/hopper), forward and backward, for both of its head sizes: values
// compared with the double references for masks, lengths, groups, and shards; the ends of a state; the same bits in
// every run. Its tiles are larger than those of the portable path, so lengths exceed them: 128 keys, 64, 128, or 192
// queries.
#include "kernels/cuda/attention/hopper/choices.h"
#include "kernels/cuda/attention/hopper/tile_schedule.h"
#include "kernels/kept_free.h"
#include "tests/kernels/cuda/gpu_attention.h"
#include "tests/support/gpu.h"

namespace ringtrain::gpu {
namespace {

// Only 1 selects the portable kernels; the tests of the grids' sizes would notice them.
[[maybe_unused]] const int of_another_value = ::setenv("RINGTRAIN_PORTABLE_ATTENTION", "0", /*overwrite=*/0);

class HopperAttention : public testing::GpuTest, public ::testing::WithParamInterface<std::int64_t> {
 protected:
  void SetUp() override {
    testing::GpuTest::SetUp();
    if (IsSkipped()) return;
    use_devices(90, 3);
    if (cuda::facts_of(0).compute_capability != 90) GTEST_SKIP() << "the GPU is not Hopper";
  }
  static AttentionShape shape(std::int64_t B, std::int64_t H, std::int64_t G, bool causal = true,
                              std::int64_t window = 0) {
    return shape_of(B, H, G, GetParam(), causal, window);
  }
};

TEST_P(HopperAttention, LengthsAndMasks) {
  Gpu gpu;
  for (std::int64_t T : {1, 65, 127, 128, 300}) {
    check(gpu, whole("causal", shape(1, 1, 1), T), DType::bfloat16);
    check(gpu, whole("full", shape(1, 1, 1, false), T), DType::bfloat16);
  }
  check(gpu, whole("window", shape(1, 1, 1, true, 70), 400), DType::bfloat16);
  check(gpu, whole("window both ways", shape(1, 1, 1, false, 130), 400), DType::bfloat16);
  check(gpu, whole("window of one", shape(1, 1, 1, true, 1), 200), DType::bfloat16);
}

TEST_P(HopperAttention, Documents) {
  Gpu gpu;
  for (std::int64_t length : {3, 50, 200}) {
    check(gpu, whole("documents, causal", shape(2, 1, 1), 330, length), DType::bfloat16);
    check(gpu, whole("documents, full", shape(2, 1, 1, false), 330, length), DType::bfloat16);
  }
  check(gpu, whole("documents, window", shape(1, 2, 1, true, 40), 330, 90), DType::bfloat16);
}

TEST_P(HopperAttention, ASoftcapGoesThePortableWay) {
  Gpu gpu;
  Case c = whole("softcap", shape(1, 2, 1), 150, 60);
  c.shape.softcap = 2;
  check(gpu, c, DType::bfloat16);
}

TEST_P(HopperAttention, Groups) {
  Gpu gpu;
  check(gpu, whole("four of one", shape(2, 4, 1), 140), DType::bfloat16);
  check(gpu, whole("two of two", shape(2, 4, 2, false), 200), DType::bfloat16);
  check(gpu, whole("each its own", shape(1, 3, 3), 140), DType::bfloat16);
}

TEST_P(HopperAttention, BeginsAndEndsAState) {
  Gpu gpu;
  const SegmentList all{{0, 1, 270}};
  for (bool first : {true, false}) {
    for (bool last : {true, false}) {
      Case c{"first " + std::to_string(first) + " last " + std::to_string(last),
             shape(1, 2, 1),
             all,
             {{{140, 1, 130}}, {{500, 1, 70}}, {{0, 1, 140}}}};
      c.first = first;
      c.last = last;
      check(gpu, c, DType::bfloat16);
    }
  }
  check(gpu, {"begins with no keys", shape(1, 1, 1), all, {{}, all}}, DType::bfloat16);
  check(gpu, {"ends with no keys", shape(1, 1, 1), all, {all, {}}}, DType::bfloat16);
  check(gpu, {"begins with hidden keys", shape(1, 1, 1), all, {{{500, 1, 70}}, all}}, DType::bfloat16);
  check(gpu, {"hidden keys alone", shape(1, 2, 1), all, {{{270, 1, 40}}}}, DType::bfloat16);
}

TEST_P(HopperAttention, AwkwardShards) {
  Gpu gpu;
  for (const AttentionCase& c : awkward_cases(GetParam())) check(gpu, c, DType::bfloat16);
}

TEST_P(HopperAttention, LargeScores) {
  Gpu gpu;
  Case c = whole("large scores", shape(1, 1, 1), 300);
  c.shape.scale = 2;
  check(gpu, c, DType::bfloat16);
}

/// While a row's maximum stays, its sums keep exactly their weight: an error in each of many tiles would add up.
TEST_P(HopperAttention, SumsKeepTheirWeight) {
  Gpu gpu;
  constexpr std::int64_t rows = 64, tokens = 1 << 13;
  const AttentionShape s{1, 1, 1, GetParam(), /*scale=*/1, {.causal = false}};
  Numbers q(rows * s.D), k(tokens * s.D);
  for (std::int64_t i = 0; i < rows; ++i) q[i * s.D] = 10 + 0.125 * static_cast<double>(i);
  k[tokens / 2 * s.D] = 1;  // the other keys have scores of 0
  const Shape by_token{1, rows, 1, s.D}, by_row{1, 1, rows}, by_key{1, tokens, 1, s.D};
  const DeviceTensor queries(gpu, DType::bfloat16, by_token, q), keys(gpu, DType::bfloat16, by_key, k);
  const DeviceTensor out(gpu, DType::bfloat16, by_token), o(gpu, DType::float32, by_token);
  const DeviceTensor m(gpu, DType::float32, by_row), l(gpu, DType::float32, by_row), lse(gpu, DType::float32, by_row);
  attention_forward(gpu.stream(), s, queries, keys, keys, {SegmentList{{0, 1, rows}}, {}},
                    {SegmentList{{0, 1, tokens}}, {}}, {o, m, l}, {true, true, out, lse},
                    DeviceTensor(gpu, DType::uint8, {1 << 16}));
  for (std::int64_t i = 0; i < rows; ++i) EXPECT_NEAR(lse.read()[i], std::log(std::exp(q[i * s.D]) + tokens - 1), 4e-6);
}

TEST_P(HopperAttention, ANaNReachesTheLogsumexp) {
  Gpu gpu;
  Case c = whole("the first key is NaN", shape(1, 1, 1), 130);
  c.planted = 0;
  c.planted_end = 1;
  for (const double lse : run(gpu, c, DType::bfloat16).lse) EXPECT_TRUE(std::isnan(lse));
}

#if defined(RINGTRAIN_CUDA_EMULATED)
/// Each thread that writes data for TMA and wgmma fences, in any order of threads.
TEST_P(HopperAttention, EveryWriterFences) {
  Gpu gpu;
  for (const auto order : {cuda_emulator::ThreadOrder::forward, cuda_emulator::ThreadOrder::backward,
                           cuda_emulator::ThreadOrder::shuffled}) {
    cuda_emulator::set_thread_order(order, 3);
    cuda_emulator::set_proxy_checks(true);
    check(gpu, whole("every write", shape(1, 1, 1), 270), DType::bfloat16);
  }
}
#endif

/// Masks, segments, and documents for which turns must be counted correctly: otherwise, a block would wait forever.
TEST_P(HopperAttention, DeterministicInAnyOrder) {
  for (const AttentionMask mask : {AttentionMask{true, 0}, AttentionMask{false, 150}}) {
    for (std::int64_t documents : {0, 170}) {
      const AttentionShape s = shape(1, 2, 1, mask.causal, mask.window);
      for (const Case& c : std::vector<Case>{
               whole("whole", s, 400, documents),
               Case{"zigzag", s, {{0, 1, 200}, {700, 1, 150}}, {{{200, 1, 170}, {600, 1, 100}}}, documents},
               Case{"striped", s, {{1, 3, 300}}, {{{2, 3, 300}}}, documents}}) {
        SCOPED_TRACE(c.name);
        Gpu gpu;
        const Outputs once = run(gpu, c, DType::bfloat16);
        const auto again = [&] { expect_same(once, run(gpu, c, DType::bfloat16)); };
#if defined(RINGTRAIN_CUDA_EMULATED)
        cuda_emulator::set_thread_order(cuda_emulator::ThreadOrder::shuffled, 5);
        again();
        cuda_emulator::set_thread_order(cuda_emulator::ThreadOrder::backward);
        cuda_emulator::set_copy_landing(cuda_emulator::CopyLanding::early);
        again();
        cuda_emulator::set_copy_landing(cuda_emulator::CopyLanding::late);
        cuda_emulator::set_thread_order(cuda_emulator::ThreadOrder::forward);
#else
        again();
#endif
      }
    }
  }
}

/// Choices that only a card can decide change no bit. Tests each choice in isolation, with the others as in the build.
TEST_P(HopperAttention, EveryChoiceGivesTheSameBits) {
  using cuda::hopper::Choices;
  struct Restore {
    ~Restore() { cuda::hopper::choices() = Choices{}; }
  } const restore;
  for (bool Choices::*choice : {&Choices::rotated_tiles, &Choices::cache_hints}) {
    for (const Case& c :
         std::vector<Case>{whole("causal", shape(1, 2, 1), 400), whole("documents", shape(1, 2, 2, false), 330, 70),
                           whole("a single step", shape(1, 1, 1), 30),
                           Case{"keys that no query sees", shape(2, 2, 1), {{0, 1, 100}}, {{{0, 1, 400}}}, 0}}) {
      SCOPED_TRACE(c.name);
      Gpu gpu;
      cuda::hopper::choices() = Choices{};
      cuda::hopper::choices().*choice = false;
      const Outputs without = run(gpu, c, DType::bfloat16);
      cuda::hopper::choices().*choice = true;
#if defined(RINGTRAIN_CUDA_EMULATED)
      cuda_emulator::set_proxy_checks(true);
      cuda_emulator::set_thread_order(cuda_emulator::ThreadOrder::shuffled, 11);
#endif
      const Outputs with = run(gpu, c, DType::bfloat16);
#if defined(RINGTRAIN_CUDA_EMULATED)
      cuda_emulator::set_proxy_checks(false);
      cuda_emulator::set_thread_order(cuda_emulator::ThreadOrder::forward);
#endif
      expect_same(without, with);
    }
  }
}

/// dk and dv are added to those that arrived with the block.
TEST_P(HopperAttention, AddsToWhatIsThere) {
  Gpu gpu;
  const Case c = whole("added", shape(1, 2, 1), 200);
  const Outputs fresh = run(gpu, c, DType::bfloat16);
  const Numbers begun(fresh.dk[0].size(), 3.0);
  const Outputs there{{}, {}, {}, {begun}, {begun}};
  const Outputs added = run(gpu, c, DType::bfloat16, &there);
  for (std::size_t i = 0; i < begun.size(); ++i) {
    ASSERT_NEAR(added.dk[0][i], fresh.dk[0][i] + 3, 1e-5) << i;
    ASSERT_NEAR(added.dv[0][i], fresh.dv[0][i] + 3, 1e-5) << i;
  }
}

TEST_P(HopperAttention, DefaultModeGivesTheSameValues) {
  Gpu gpu;
  Case c = whole("in any order", shape(1, 2, 1), 300, 160);
  c.shape.deterministic = false;
  check(gpu, c, DType::bfloat16);
}

#if defined(RINGTRAIN_CUDA_EMULATED)
/// During a ring's messages: they find multiprocessors without a block of attention, forward and backward.
TEST_P(HopperAttention, LeavesMultiprocessorsFreeAndChangesNoBit) {
  use_devices(90, 6);
  Gpu gpu;
  const Case c = whole("many tiles", shape(1, 3, 3), 700);
  const auto blocks_with = [&](int kept_free, Outputs& outputs) {
    const KeptFree reserved(kept_free);
    cuda_emulator::start_trace();
    outputs = run(gpu, c, DType::bfloat16);
    std::pair<std::size_t, std::size_t> blocks{};
    for (const auto& one : cuda_emulator::take_trace()) {
      if (one.name.find("forward_kernel") != std::string::npos) blocks.first = one.blocks;
      if (one.name.find("backward_kernel") != std::string::npos) blocks.second = one.blocks;
    }
    return blocks;
  };
  Outputs all, most, least;
  EXPECT_EQ(blocks_with(0, all), (std::pair<std::size_t, std::size_t>{6, 6}));
  EXPECT_EQ(blocks_with(2, most), (std::pair<std::size_t, std::size_t>{4, 4}));
  EXPECT_EQ(blocks_with(9, least), (std::pair<std::size_t, std::size_t>{3, 3})) << "half of them at least";
  expect_same(all, most);
  expect_same(all, least);
}

/// If each multiprocessor gets few tiles, those of middle length come first.
TEST_P(HopperAttention, FewTilesInAnotherOrderGiveTheSameValues) {
  using cuda::hopper::choices;
  constexpr int multiprocessors = 4;
  use_devices(90, multiprocessors);
  Gpu gpu;
  Case c = whole("few tiles", shape(1, 3, 3), GetParam() == 64 ? 550 : 380);
  c.shape.deterministic = false;
  const AttentionTokens tokens{c.queries, {}};
  ASSERT_GT(cuda::hopper::forward_order(c.shape, tokens, tokens, multiprocessors).rotated, 0);
  ASSERT_GT(cuda::hopper::backward_order(c.shape, tokens, tokens, multiprocessors).rotated, 0);
  check(gpu, c, DType::bfloat16);
  Outputs rotated = run(gpu, c, DType::bfloat16);
  choices().rotated_tiles = false;
  Outputs plain = run(gpu, c, DType::bfloat16);
  choices().rotated_tiles = true;
  rotated.dq = plain.dq = {};  // they are added in any order
  expect_same(rotated, plain);
}
#endif

INSTANTIATE_TEST_SUITE_P(Heads, HopperAttention, ::testing::Values(64, 128),
                         [](const auto& one) { return "Of" + std::to_string(one.param); });

}  // namespace
}  // namespace ringtrain::gpu
