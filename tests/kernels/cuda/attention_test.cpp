// Attention on CUDA, forward and backward: values compared with the double references for masks, head sizes, groups,
// lengths, and shards; the ends of a state; the same bits in every run and every order of blocks; rings compared with
// one rank.
#include "tests/kernels/cuda/gpu_attention.h"
#include "tests/support/gpu.h"

namespace ringtrain::gpu {
namespace {

class GpuAttention : public testing::GpuTest {
 protected:
  void SetUp() override {
    testing::GpuTest::SetUp();
    if (!IsSkipped()) use_devices(80, 8);  // the portable path
  }
};

/// Both paths: float32 with its own head size, bfloat16 on tensor cores.
void check_paths(Gpu& gpu, Case c) {
  c.shape.D = 64;
  c.shape.scale = 0.125;
  check(gpu, c, DType::bfloat16);
  c.shape.D = 24;
  c.shape.scale = 0.2;
  check(gpu, c, DType::float32);
}

TEST_F(GpuAttention, LengthsAndMasks) {
  Gpu gpu;
  for (std::int64_t T : {1, 7, 64, 65, 127, 200, 300}) {
    for (const AttentionMask mask : {AttentionMask{true, 0}, AttentionMask{false, 0}, AttentionMask{true, 70}}) {
      check_paths(gpu, whole("T " + std::to_string(T) + " causal " + std::to_string(mask.causal) + " window " +
                                 std::to_string(mask.window),
                             shape_of(1, 1, 1, 64, mask.causal, mask.window), T));
    }
  }
}

TEST_F(GpuAttention, Windows) {
  Gpu gpu;
  for (bool causal : {true, false}) {
    for (std::int64_t window : {1, 3, 64, 129}) {
      check_paths(gpu, whole("window " + std::to_string(window), shape_of(1, 1, 1, 64, causal, window), 200));
    }
  }
}

TEST_F(GpuAttention, Documents) {
  Gpu gpu;
  for (std::int64_t length : {2, 20, 90}) {
    for (const AttentionMask mask : {AttentionMask{true, 0}, AttentionMask{false, 0}, AttentionMask{true, 40}}) {
      check_paths(gpu, whole("documents of " + std::to_string(length), shape_of(2, 1, 1, 64, mask.causal, mask.window),
                             250, length));
    }
  }
}

TEST_F(GpuAttention, HeadSizesAndGroups) {
  Gpu gpu;
  for (std::int64_t D : {64, 128}) {
    for (std::int64_t group : {1, 2, 4, 8}) {
      check(gpu, whole("group of " + std::to_string(group), shape_of(group < 4 ? 2 : 1, group, 1, D), 70),
            DType::bfloat16);
    }
    check(gpu, whole("two groups", shape_of(1, 4, 2, D, false), 130), DType::bfloat16);
  }
  for (std::int64_t D : {1, 3, 33, 64, 80, 128, 200, 256}) {
    check(gpu, whole("D " + std::to_string(D), shape_of(2, 2, 1, D), 70), DType::float32);
    if (D != 64 && D != 128) check(gpu, whole("D " + std::to_string(D), shape_of(1, 2, 1, D), 70), DType::bfloat16);
  }
  EXPECT_THROW(check(gpu, whole("too large a head", shape_of(1, 1, 1, 257), 5), DType::float32), Error);
}

/// Cards with less shared memory use another cut for heads of 128.
TEST_F(GpuAttention, SmallSharedMemory) {
  use_devices(86, 8);
  Gpu gpu;
  for (bool causal : {true, false}) {
    Case c = whole("small", shape_of(1, 2, 1, 128, causal), 150, 60);
    check(gpu, c, DType::bfloat16);
    c.shape.deterministic = false;
    check(gpu, c, DType::bfloat16);
  }
}

TEST_F(GpuAttention, BeginsAndEndsAState) {
  Gpu gpu;
  const SegmentList all{{0, 1, 130}};
  const std::vector<std::vector<SegmentList>> orders = {
      {all}, {{{70, 1, 60}}, {{0, 1, 70}}}, {{}, all}, {all, {}}, {{}}};
  for (bool first : {true, false}) {
    for (bool last : {true, false}) {
      for (const auto& blocks : orders) {
        Case c{"first " + std::to_string(first) + " last " + std::to_string(last), shape_of(1, 2, 1, 64), all, blocks};
        c.first = first;
        c.last = last;
        check_paths(gpu, c);
      }
    }
  }
}

TEST_F(GpuAttention, AwkwardShards) {
  Gpu gpu;
  for (const AttentionCase& c : awkward_cases(64)) check_paths(gpu, c);
  const Case before{"before", shape_of(2, 2, 1, 64), {{0, 1, 230}}, {{{100, 1, 130}}, {{400, 1, 10}}}};
  const Outputs got = run(gpu, before, DType::bfloat16);
  EXPECT_TRUE(std::all_of(got.lse.begin(), got.lse.begin() + 100, [](double x) { return x == -INFINITY; }));
  EXPECT_TRUE(std::all_of(got.out.begin(), got.out.begin() + 100 * 2 * 64, [](double x) { return x == 0; }));
}

TEST_F(GpuAttention, SixteenSegmentsAndNoMore) {
  Gpu gpu;
  SegmentList many;
  for (std::int64_t i = 0; i < 17; ++i) many.push_back({10 * i, 1, 3});
  EXPECT_THROW(run(gpu, {"17 segments", shape_of(1, 1, 1, 64), many, {many}}, DType::bfloat16), Error);
  many.pop_back();
  check_paths(gpu, {"16 segments", shape_of(1, 1, 1, 64), many, {many}});
}

/// Tiles that no query sees are never read: they contain NaN. The largest tile of keys has 128.
TEST_F(GpuAttention, HiddenTilesAreNeverRead) {
  Gpu gpu;
  const SegmentList middle{{256, 1, 128}}, all{{0, 1, 512}};
  const auto hides = [&](Case c, std::int64_t begin, std::int64_t end) {
    c.planted = begin;
    c.planted_end = end;
    check_paths(gpu, c);
  };
  hides({"causal", shape_of(1, 2, 1, 64), middle, {all}}, 384, 512);
  hides({"window", shape_of(1, 2, 1, 64, true, 65), middle, {all}}, 0, 128);
  hides({"window on both sides", shape_of(1, 2, 1, 64, false, 65), {{128, 1, 128}}, {all}}, 384, 512);
  // Documents change at 64, 192, 256, 384, 448: the queries are in the one from 256 to 384.
  hides({"documents", shape_of(1, 2, 1, 64, false), middle, {all}, 128}, 0, 256);
  hides({"striped", shape_of(1, 2, 1, 64), {{0, 4, 64}}, {{{1, 4, 256}}}}, 1 + 4 * 128, 1024);
}

TEST_F(GpuAttention, LargeScores) {
  Gpu gpu;
  Case c = whole("large scores", shape_of(1, 1, 1, 64), 150);
  c.shape.scale = 2;
  check(gpu, c, DType::bfloat16);
}

/// Both paths, and heads of 128 with the cuts for both sizes of shared memory.
TEST_F(GpuAttention, Softcaps) {
  for (const int chip : {80, 86}) {
    use_devices(chip, 8);
    Gpu gpu;
    for (const double softcap : {0.5, 4.0}) {
      for (const AttentionMask mask : {AttentionMask{true, 0}, AttentionMask{false, 0}, AttentionMask{true, 70}}) {
        Case c = whole("softcap " + std::to_string(softcap), shape_of(1, 2, 1, 64, mask.causal, mask.window), 200,
                       mask.window == 0 ? 60 : 0);
        c.shape.softcap = softcap;
        if (chip == 80) check_paths(gpu, c);
        c.shape = shape_of(1, 2, 1, 128, mask.causal, mask.window);
        c.shape.softcap = softcap;
        check(gpu, c, DType::bfloat16);
      }
    }
    Case before{"before", shape_of(1, 2, 1, 64), {{0, 1, 130}}, {{{100, 1, 60}}, {{400, 1, 10}}}};
    before.shape.softcap = 2;
    check(gpu, before, DType::bfloat16);
    Case any = whole("in any order", shape_of(1, 2, 1, 64), 200);
    any.shape.softcap = 2;
    any.shape.deterministic = false;
    check(gpu, any, DType::bfloat16);
  }
}

/// One attention over S tokens by a ring: every rank's queries meet every rank's keys, starting with its own. dk and dv
/// move on with the block. All results are ordered by position, like those of one rank.
Outputs ring(Gpu& gpu, const Case& c, std::int64_t S, Layout layout, int ranks, DType dtype) {
  const AttentionShape& s = c.shape;
  const auto by_token = static_cast<std::size_t>(s.B * S * s.H * s.D),
             by_key = static_cast<std::size_t>(s.B * S * s.G * s.D);
  Outputs all{Numbers(by_token), Numbers(static_cast<std::size_t>(s.B * s.H * S)), Numbers(by_token), {}, {}};
  std::vector<SegmentList> shards;
  Outputs traveling;
  for (int rank = 0; rank < ranks; ++rank) {
    shards.push_back(shard_segments(layout, S, ranks, rank));
    const auto n = static_cast<std::size_t>(s.B * token_count(shards.back()) * s.G * s.D);
    traveling.dk.emplace_back(n, 0.0);
    traveling.dv.emplace_back(n, 0.0);
  }
  const auto scatter = [&](Numbers& to, const Numbers& from, const SegmentList& shard, std::int64_t row) {
    const auto positions = positions_of(shard);
    const auto T = static_cast<std::int64_t>(positions.size());
    for (std::int64_t i = 0; i < s.B * T * row; ++i) {
      const std::int64_t b = i / row / T, t = i / row % T;
      to[(b * S + positions[static_cast<std::size_t>(t)]) * row + i % row] = from[i];
    }
  };
  for (int rank = 0; rank < ranks; ++rank) {
    Case mine = c;
    mine.queries = shards[rank];
    mine.blocks.clear();
    Outputs begun;
    for (int hop = 0; hop < ranks; ++hop) {
      const auto owner = static_cast<std::size_t>((rank - hop + ranks) % ranks);
      mine.blocks.push_back(shards[owner]);
      begun.dk.push_back(traveling.dk[owner]);
      begun.dv.push_back(traveling.dv[owner]);
    }
    const Outputs got = run(gpu, mine, dtype, &begun);
    scatter(all.out, got.out, mine.queries, s.H * s.D);
    scatter(all.dq, got.dq, mine.queries, s.H * s.D);
    for (int hop = 0; hop < ranks; ++hop) {
      const auto owner = static_cast<std::size_t>((rank - hop + ranks) % ranks);
      traveling.dk[owner] = got.dk[hop];
      traveling.dv[owner] = got.dv[hop];
    }
  }
  all.dk.emplace_back(by_key);
  all.dv.emplace_back(by_key);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    scatter(all.dk[0], traveling.dk[r], shards[r], s.G * s.D);
    scatter(all.dv[0], traveling.dv[r], shards[r], s.G * s.D);
  }
  return all;
}

void expect_ring_as_exact(Gpu& gpu, const Case& c, std::int64_t S, DType dtype) {
  const Expected e = expected_of(c, dtype);
  const Outputs one = run(gpu, c, dtype);
  for (Layout layout : all_layouts) {
    for (int ranks : {2, 3}) {
      SCOPED_TRACE(std::string(name_of(layout)) + " of " + std::to_string(ranks) + ", " + c.name);
      const Outputs got = ring(gpu, c, S, layout, ranks, dtype);
      const auto compare = [&](const Numbers& x, const Numbers& of_one, const Numbers& exact, const char* what) {
        const Difference d = difference(x, exact), allowed = difference(of_one, exact);
        const double sums = 3e-7 * d.largest;
        EXPECT_LE(d.rms, 1.2 * allowed.rms + sums) << what;
        EXPECT_LE(d.most, 2 * allowed.most + 3 * sums) << what << ", maximum";  // of one element: it may vary
      };
      compare(got.out, one.out, e.forward.out, "out");
      compare(got.dq, one.dq, e.backward.dq, "dq");
      compare(got.dk[0], one.dk[0], e.backward.dk, "dk");
      compare(got.dv[0], one.dv[0], e.backward.dv, "dv");
    }
  }
}

TEST_F(GpuAttention, RingIsAsExactAsOneRank) {
  Gpu gpu;
  constexpr std::int64_t S = 147;
  expect_ring_as_exact(gpu, whole("causal", shape_of(1, 2, 1, 64), S), S, DType::bfloat16);
  expect_ring_as_exact(gpu, whole("full", shape_of(1, 1, 1, 64, false), S, 40), S, DType::bfloat16);
  expect_ring_as_exact(gpu, whole("window", shape_of(1, 1, 1, 128, true, 50), S), S, DType::bfloat16);
  expect_ring_as_exact(gpu, whole("all at once", shape_of(1, 1, 1, 64, true, 50), S, 40), S, DType::bfloat16);
  expect_ring_as_exact(gpu, whole("all at once", shape_of(1, 2, 1, 20, true, 50), S, 40), S, DType::float32);
}

/// Masks, segments, and documents for which turns must be counted correctly: otherwise, a block would wait forever.
TEST_F(GpuAttention, DeterministicInAnyOrderOfBlocks) {
  std::vector<Case> cases;
  for (const AttentionMask mask : {AttentionMask{true, 0}, AttentionMask{false, 0}, AttentionMask{true, 90}}) {
    AttentionShape shape = shape_of(1, 2, 1, 64, mask.causal, mask.window);
    cases.push_back({"zigzag", shape, {{0, 1, 150}, {500, 1, 90}}, {{{150, 1, 140}, {400, 1, 100}}}, 70});
    cases.push_back({"striped", shape, {{1, 3, 200}}, {{{2, 3, 200}}}});
  }
  cases.push_back(whole("whole", shape_of(2, 2, 2, 64), 400, 90));
  cases.push_back(whole("heads of 128", shape_of(1, 1, 1, 128, false), 260));
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name + " window " + std::to_string(c.shape.mask.window));
    Gpu gpu;
    const Outputs once = run(gpu, c, DType::bfloat16);
#if defined(RINGTRAIN_CUDA_EMULATED)
    cuda_emulator::set_thread_order(cuda_emulator::ThreadOrder::shuffled, 5);
    expect_same(once, run(gpu, c, DType::bfloat16));
    cuda_emulator::set_thread_order(cuda_emulator::ThreadOrder::backward);
    expect_same(once, run(gpu, c, DType::bfloat16));
    cuda_emulator::set_thread_order(cuda_emulator::ThreadOrder::forward);
#else
    for (int i = 0; i < 5; ++i) expect_same(once, run(gpu, c, DType::bfloat16));
#endif
  }
}

TEST_F(GpuAttention, DefaultModeGivesTheSameValues) {
  Gpu gpu;
  for (std::int64_t D : {64, 128}) {
    Case c = whole("in any order", shape_of(1, 2, 1, D), 200);
    c.shape.deterministic = false;
    check(gpu, c, DType::bfloat16);
  }
}

}  // namespace
}  // namespace ringtrain::gpu
