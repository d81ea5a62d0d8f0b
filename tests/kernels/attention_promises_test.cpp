// Properties of attention other than its values: the same bits for any number of threads and for a contiguous causal
// ring, hidden tiles are never read, the formula of the workspace.
#include <cstring>

#include "kernels/cpu/attention_cpu.h"
#include "tests/kernels/attention_case.h"

namespace ringtrain {
namespace {

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
void expect_attention_of_any_workers(const AttentionCase& c) {
  SCOPED_TRACE(c.name);
  Problem<T> one = make_inputs<T>(c);
  compute(one, c, 1);
  for (int workers : {2, 3, 5}) {
    for (int repetition = 0; repetition < 3; ++repetition) {
      Problem<T> many = make_inputs<T>(c);
      compute(many, c, workers);
      EXPECT_TRUE(same_bits(one.out, many.out) && same_bits(one.lse, many.lse)) << workers << " workers, forward";
      EXPECT_TRUE(same_bits(one.dq, many.dq)) << workers << " workers, dq";
      for (std::size_t i = 0; i < one.dk.size(); ++i) {
        EXPECT_TRUE(same_bits(one.dk[i], many.dk[i])) << workers << " workers, dk";
        EXPECT_TRUE(same_bits(one.dv[i], many.dv[i])) << workers << " workers, dv";
      }
    }
  }
}

TEST(Attention, SameBitsForAnyNumberOfWorkers) {
  for (bool causal : {true, false}) {
    for (std::int64_t window : {0, 150}) {
      for (std::int64_t documents : {0, 260}) {
        expect_attention_of_any_workers<float>(
            whole("one head", shape_of(1, 1, 1, 16, causal, window), 1300, documents));
        expect_attention_of_any_workers<double>(whole("groups", shape_of(2, 4, 2, 8, causal, window), 700, documents));
      }
    }
  }
}

/// With few workers, a task takes more keys and queries at a time than with many.
TEST(Attention, SameBitsHoweverMuchATaskTakes) {
  constexpr std::int64_t T = 1100, B = 4, G = 2;
  ASSERT_NE(cpu::keys_a_task(B * G * T, 1), cpu::keys_a_task(B * G * T, 5));
  ASSERT_NE(cpu::queries_a_task(B * G * T, 1), cpu::queries_a_task(B * G * T, 5));
  for (bool causal : {true, false}) {
    for (std::int64_t window : {0, 150}) {
      const AttentionShape shape = shape_of(B, G, G, 8, causal, window);
      expect_attention_of_any_workers<float>(whole("one document", shape, T));
      expect_attention_of_any_workers<double>(whole("documents", shape, T, 260));
    }
  }
  const AttentionShape shape = shape_of(B, G, G, 8);
  expect_attention_of_any_workers<float>({"off the grid", shape, {{70, 1, T}}, {{{70, 1, 200}, {300, 1, T - 200}}}});
  expect_attention_of_any_workers<float>({"striped", shape, {{1, 3, T}}, {{{2, 3, T}}}});
}

/// A contiguous causal ring whose shards end at tile edges adds in the order of one device, including dk and dv: they
/// move with the block, from its owner to the ranks after it.
template <class T>
void expect_ring_equals_one_device(const AttentionShape& shape, std::int64_t documents) {
  constexpr std::int64_t ranks = 4, T_rank = 256;
  const AttentionCase one = whole("one device", shape, ranks * T_rank, documents);
  Problem<T> whole_run = make_inputs<T>(one);
  compute(whole_run, one, 2);
  // shape.B is 1, so a rank's rows are contiguous in the whole tensors.
  const auto rows = [](const std::vector<T>& x, std::int64_t rank) {
    const auto n = static_cast<std::ptrdiff_t>(x.size()) / ranks;
    return std::vector<T>(x.begin() + rank * n, x.begin() + (rank + 1) * n);
  };
  std::vector<std::vector<T>> dk(ranks), dv(ranks);
  ThreadPool pool(2);
  Stream stream(pool);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    AttentionCase c{"rank", shape, {{rank * T_rank, 1, T_rank}}, {}, documents};
    Problem<T> run;
    run.q = rows(whole_run.q, rank);
    run.dout = rows(whole_run.dout, rank);
    for (std::int64_t owner = rank; owner >= 0; --owner) {
      c.blocks.push_back({{owner * T_rank, 1, T_rank}});
      run.k.push_back(rows(whole_run.k[0], owner));
      run.v.push_back(rows(whole_run.v[0], owner));
      run.dk.push_back(dk[owner]);
      run.dv.push_back(dv[owner]);
    }
    compute(run, c, 2);
    EXPECT_TRUE(same_bits(run.out, rows(whole_run.out, rank))) << "out of rank " << rank;
    EXPECT_TRUE(same_bits(run.dq, rows(whole_run.dq, rank))) << "dq of rank " << rank;
    for (std::int64_t owner = rank; owner >= 0; --owner) {
      dk[owner] = run.dk[rank - owner];
      dv[owner] = run.dv[rank - owner];
    }
  }
  for (std::int64_t owner = 0; owner < ranks; ++owner) {
    EXPECT_TRUE(same_bits(dk[owner], rows(whole_run.dk[0], owner))) << "dk of " << owner;
    EXPECT_TRUE(same_bits(dv[owner], rows(whole_run.dv[0], owner))) << "dv of " << owner;
  }
}

TEST(Attention, ContiguousRingAddsInTheOrderOfOneDevice) {
  for (std::int64_t window : {0, 300}) {
    for (std::int64_t documents : {0, 170}) {
      expect_ring_equals_one_device<float>(shape_of(1, 4, 2, 16, true, window), documents);
      expect_ring_equals_one_device<double>(shape_of(1, 2, 1, 20, true, window), documents);
    }
  }
}

/// Plants NaN in keys and values [begin, end) that no query sees, in whole tiles: if a kernel read them, out or
/// gradients would show it.
void expect_never_read(const AttentionCase& c, std::int64_t begin, std::int64_t end) {
  SCOPED_TRACE(c.name);
  Problem<float> clean = make_inputs<float>(c), planted = clean;
  const auto row = static_cast<std::ptrdiff_t>(c.shape.G * c.shape.D);
  std::fill(planted.k[0].begin() + begin * row, planted.k[0].begin() + end * row, std::nanf(""));
  std::fill(planted.v[0].begin() + begin * row, planted.v[0].begin() + end * row, std::nanf(""));
  compute(clean, c, 2);
  compute(planted, c, 2);
  EXPECT_TRUE(same_bits(clean.out, planted.out) && same_bits(clean.lse, planted.lse)) << "forward";
  EXPECT_TRUE(same_bits(clean.dq, planted.dq) && same_bits(clean.dk[0], planted.dk[0]) &&
              same_bits(clean.dv[0], planted.dv[0]))
      << "backward";
  EXPECT_TRUE(std::all_of(clean.out.begin(), clean.out.end(), [](float x) { return std::isfinite(x); }));
}

TEST(Attention, HiddenTilesAreNeverRead) {
  const SegmentList middle{{512, 1, 256}}, all{{0, 1, 1024}};
  expect_never_read({"causal", shape_of(1, 2, 1, 16), middle, {all}}, 768, 1024);
  expect_never_read({"window", shape_of(1, 2, 1, 16, true, 129), middle, {all}}, 0, 384);
  expect_never_read({"window on both sides", shape_of(1, 2, 1, 16, false, 129), middle, {all}}, 896, 1024);
  // Documents change at 128, 384, 512, 768, 896: the queries are in the one from 512 to 768.
  expect_never_read({"documents before", shape_of(1, 2, 1, 16, false), middle, {all}, 256 * 2}, 0, 256);
  expect_never_read({"striped", shape_of(1, 2, 1, 16), {{0, 4, 256}}, {{{1, 4, 512}}}}, 256, 512);
}

TEST(Attention, WorkspaceFollowsItsFormula) {
  const AttentionShape shape = shape_of(2, 8, 4, 64);
  const auto bytes = [&](int workers, std::int64_t Tq, std::int64_t Tk) {
    ThreadPool pool(workers);
    return attention_workspace_bytes(Stream(pool), shape, DType::float32, Tq, Tk);
  };
  EXPECT_EQ(bytes(1, 1 << 10, 1 << 20), bytes(1, 1 << 20, 1 << 20));                     // for any number of queries
  EXPECT_EQ(bytes(1, 1, 2 << 20) - bytes(1, 1, 1 << 20), (1U << 20) / 128 * 2 * 4 * 8);  // one counter per key tile
  const std::int64_t Tk = 1 << 20;                                                  // backward needs more: its counters
  EXPECT_EQ(bytes(3, 1, Tk) - bytes(2, 1, Tk), bytes(2, 1, Tk) - bytes(1, 1, Tk));  // one slice per worker
  EXPECT_LT(bytes(1, 1 << 20, 1 << 20), std::size_t{9} << 17);
}

}  // namespace
}  // namespace ringtrain
