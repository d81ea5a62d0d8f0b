#include "tests/parallel/mpi/overlap.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "parallel/collectives.h"
#include "parallel/ring.h"

namespace ringtrain::testing {

namespace {

constexpr std::int64_t heads = 4, head_size = 64;
constexpr int passes = 5;  // the median counts

struct Times {
  double computing = 0, waiting = 0;  // seconds: of a hop, and for its block
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Every query sees every key, so all hops compute alike.
Times run_ring(Communicator& world, std::int64_t T) {
  ThreadPool pool(1);
  Stream stream(pool);
  Allocator allocator(Device::cpu());
  const int N = world.size();
  const AttentionMask mask{.causal = false, .window = 0};
  std::vector<SegmentList> segments;
  std::vector<ShardExtents> extents;
  for (int rank = 0; rank < N; ++rank) {
    segments.push_back(shard_segments(Layout::contiguous, T * N, N, rank));
    const SegmentExtent extent{segments.back()[0].start, segments.back()[0].last(), 0, 0};
    extents.emplace_back(std::size_t{1}, std::vector<SegmentExtent>{extent});
  }
  Ring ring(allocator, &world, N,
            {.tokens = T, .gradient_tokens = 0, .G = heads, .D = head_size, .backward = false, .documents = false});
  const AttentionShape shape{1, heads, heads, head_size, 0.125, mask};
  const auto make = [&](const char* name, const Shape& of) {
    Tensor tensor = allocator.make(Tag::activations, name, DType::float32, of);
    fill(stream, tensor, 0.5);
    return tensor;
  };
  const Tensor q = make("q", {1, T, heads, head_size}), kv = make("kv", {2, 1, T, heads, head_size});
  const Tensor o = make("o", {1, T, heads, head_size}), m = make("m", {1, heads, T}), l = make("l", {1, heads, T});
  const Tensor workspace =
      allocator.make(Tag::workspace, "workspace", DType::uint8,
                     {static_cast<std::int64_t>(attention_workspace_bytes(stream, shape, DType::float32, T, T))});
  const AttentionTokens own{segments[static_cast<std::size_t>(world.rank())], {}};
  const AttentionState state{o, m, l};
  std::vector<double> computing, waiting;
  for (int pass = 0; pass < passes + 1; ++pass) {
    ring.begin(mask, extents, segments, 1);
    attention_reset(stream, state);
    world.barrier({"before a pass"});
    double first_hop = 0;
    ring.forward(stream, pass, kv, {}, [&](const RingBlock& block) {
      const double start = seconds_now();
      attention_forward(stream, shape, q, block.k, block.v, own, block.tokens, state, {}, workspace);
      if (block.hop == 0) first_hop = seconds_now() - start;
    });
    const double wait = ring.take_load().forward.wait_seconds();
    if (pass == 0) continue;  // touches memory for the first time
    computing.push_back(first_hop);
    waiting.push_back(wait);
  }
  return {median(computing), median(waiting)};
}

/// Return the seconds that a block is under way: its announcement, the leave to send, and the data, each of which the
/// link delays.
double transfer_seconds(const Link& link, std::int64_t T) {
  return static_cast<double>(2 * T * heads * head_size) * sizeof(float) / link.bytes_per_second + 3 * link.delay;
}

/// Return from how many tokens a rank on computing, which grows with their square, takes as long as their transfer, at
/// the rate of a hop of T tokens.
double tokens_to_hide(const Link& link, std::int64_t T, double computing) {
  const double per_pair = computing / (static_cast<double>(T) * static_cast<double>(T));
  const double per_token = (transfer_seconds(link, T) - transfer_seconds(link, 0)) / static_cast<double>(T);
  return (per_token + std::sqrt(per_token * per_token + 4 * per_pair * transfer_seconds(link, 0))) / (2 * per_pair);
}

/// A link cannot be faster than it was made, so what computing does not cover is waited for; and where computing takes
/// a quarter longer than the block should be under way, the wait is gone.
bool measure(Communicator& world, const Link& link) {
  constexpr double enough = 1.25;
  if (world.rank() == 0) {
    std::printf("blocks of keys and values over a link of %.0f MB/s and %.0f ms, ring of %d; milliseconds of a hop\n",
                link.bytes_per_second / 1e6, link.delay * 1e3, world.size());
    std::printf("%8s %10s %14s %14s %14s\n", "tokens", "computing", "transfer", "least wait", "wait measured");
  }
  for (std::int64_t T = 1024; T <= 32768; T *= 2) {
    const Times own = run_ring(world, T);
    // Of the slowest rank: it is what the others wait for in the end.
    std::array<std::int64_t, 2> most{std::llround(own.computing * 1e9), std::llround(own.waiting * 1e9)};
    all_reduce_max(world, most, {"times of all ranks"});
    const double computing = 1e-9 * static_cast<double>(most[0]), waiting = 1e-9 * static_cast<double>(most[1]);
    const double transfer = transfer_seconds(link, T), least = std::max(0.0, transfer - computing);
    const bool covered = computing >= enough * transfer, hidden = waiting <= 0.1 * transfer;
    if (world.rank() == 0) {
      std::printf("%8lld %10.1f %14.1f %14.1f %14.1f\n", static_cast<long long>(T), computing * 1e3, transfer * 1e3,
                  least * 1e3, waiting * 1e3);
      if (covered || hidden) {
        const double flops = 4.0 * static_cast<double>(T) * static_cast<double>(T) * heads * head_size;
        std::printf("predicted: hidden from %.0f tokens a rank on (%.0f GFLOP/s); measured: %s at %lld\n",
                    tokens_to_hide(link, T, computing), flops / computing / 1e9, hidden ? "hidden" : "not hidden",
                    static_cast<long long>(T));
      }
      std::fflush(stdout);
    }
    if (waiting < 0.8 * least - 0.005) return false;  // no such link
    if (covered || hidden) return hidden;
  }
  return false;
}

}  // namespace

int measure_overlap(Launcher& launcher, const Link& link) {
  bool as_predicted = false;
  launcher.launch({.ranks = launcher.processes(), .timeout_seconds = 60, .backend = Backend::mpi},
                  [&](Communicator& world) { as_predicted = measure(world, link); });
  const int code = as_predicted ? 0 : 1;
  launcher.finish(code);
  return code;
}

}  // namespace ringtrain::testing
