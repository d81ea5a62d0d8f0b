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
#include "parallel/ring/ring.h"
#include "tests/support/attention_state.h"
#include "tests/support/shards.h"

namespace ringtrain::testing {

namespace {

constexpr std::int64_t heads = 4, head_size = 64;
constexpr int passes = 5;  // uses the median

struct Times {
  double computing = 0, waiting = 0;  // seconds: of a hop, and of waiting for the data of the previous hop
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A ring whose ranks have T tokens each. Every query sees every key, so all hops take the same time.
class FullRing {
 public:
  FullRing(Communicator& world, std::int64_t T, std::int64_t min_part, DType dtype = DType::float32)
      : world_(world),
        pool_(1),
        stream_(pool_),
        allocator_(Device::cpu()),
        ring_(allocator_, &world, world.size(),
              {.tokens = T,
               .gradient_tokens = T,
               .G = heads,
               .D = head_size,
               .dtype = dtype,
               .documents = false,
               .min_part = min_part}),
        shards_(shards_of(Layout::contiguous, T * world.size(), world.size())) {
    const Shape of_tokens{1, T, heads, head_size}, rows{1, heads, T};
    const DType sums = accumulator(dtype);
    q_ = make("q", dtype, of_tokens);
    o_ = make("o", sums, of_tokens);
    m_ = make("m", sums, rows);
    l_ = make("l", sums, rows);
    kv_ = make("kv", dtype, {2, 1, T, heads, head_size});
    dkv_ = make("dkv", sums, {2, 1, T, heads, head_size});
    const std::size_t bytes = attention_workspace_bytes(stream_, shape_, dtype, T, T);
    workspace_ = allocator_.make(Tag::workspace, "workspace", DType::uint8, {static_cast<std::int64_t>(bytes)});
  }

  Times forward() {
    const AttentionState state{o_, m_, l_};
    return pass([&] { reset_state(stream_, state); },
                [&](const RingVisitor& visitor) { ring_.forward(stream_, 0, kv_, {}, visitor); },
                [&](const RingBlock& block) {
                  attention_forward(stream_, shape_, q_, block.k, block.v, own(), block.tokens, state, {}, workspace_);
                },
                /*backward=*/false);
  }
  /// Sends forward's blocks and computes nothing.
  Times transfers() {
    return pass([] {}, [&](const RingVisitor& visitor) { ring_.forward(stream_, 0, kv_, {}, visitor); },
                [](const RingBlock&) {}, /*backward=*/false);
  }
  /// The numbers are meaningless, but kernels take the usual time.
  Times backward() {
    return pass([&] { fill(stream_, m_, 10.0); },
                [&](const RingVisitor& visitor) { ring_.backward(stream_, 0, kv_, {}, dkv_, visitor); },
                [&](const RingBlock& block) {
                  attention_backward(stream_, shape_, q_, block.k, block.v, q_, m_, l_, own(), block.tokens, o_,
                                     block.dk, block.dv, workspace_, block.accumulate);
                },
                /*backward=*/true);
  }

 private:
  Tensor make(const char* name, DType dtype, const Shape& shape) {
    Tensor tensor = allocator_.make(Tag::activations, name, dtype, shape);
    fill(stream_, tensor, 0.5);
    return tensor;
  }
  AttentionTokens own() const { return {shards_.segments[world_.rank()], {}}; }
  /// Returns medians over passes. The end of a pass, when gradients return, does not count as waiting of a hop.
  template <class Prepare, class Run, class Visit>
  Times pass(const Prepare& prepare, const Run& run, const Visit& visit, bool backward) {
    std::vector<double> computing, waiting;
    for (int i = 0; i < passes + 1; ++i) {
      ring_.begin(mask_, shards_.extents, shards_.segments, 1);
      prepare();
      world_.barrier({"before a pass"});
      double first_hop = 0;
      run([&](const RingBlock& block) {
        const double start = seconds_now();
        visit(block);
        if (block.hop == 0) first_hop += seconds_now() - start;
      });
      const RingLoad load = ring_.take_loads()[backward];
      if (i == 0) continue;  // touches memory for the first time
      computing.push_back(first_hop);
      waiting.push_back(load.wait_seconds() - load.hop_waits.back());
    }
    return {median(computing), median(waiting)};
  }

  static constexpr AttentionMask mask_{.causal = false, .window = 0};
  static constexpr AttentionShape shape_{1, heads, heads, head_size, 0.125, mask_};
  Communicator& world_;
  ThreadPool pool_;
  Stream stream_;
  Allocator allocator_;
  Ring ring_;
  const Shards shards_;
  Tensor q_, o_, m_, l_, kv_, dkv_, workspace_;
};

/// Returns the slowest rank's times, for which the others wait in the end.
Times slowest(Communicator& world, const Times& own) {
  std::array<std::int64_t, 2> most{std::llround(own.computing * 1e9), std::llround(own.waiting * 1e9)};
  all_reduce_max(world, most, {"times of all ranks"});
  return {1e-9 * static_cast<double>(most[0]), 1e-9 * static_cast<double>(most[1])};
}

/// Returns the seconds of a block's transfer: its announcement, the permission to send, and the data, each of which the
/// link delays.
double transfer_seconds(const Link& link, std::int64_t T) {
  return static_cast<double>(2 * T * heads * head_size) * sizeof(float) / link.bytes_per_second + 3 * link.delay;
}

/// Returns the number of tokens per rank at which computing, which grows with their square, takes as long as their
/// transfer, at the rate of a hop of T tokens.
double tokens_to_hide(const Link& link, std::int64_t T, double computing) {
  const double per_pair = computing / (static_cast<double>(T) * static_cast<double>(T));
  const double per_token = (transfer_seconds(link, T) - transfer_seconds(link, 0)) / static_cast<double>(T);
  return (per_token + std::sqrt(per_token * per_token + 4 * per_pair * transfer_seconds(link, 0))) / (2 * per_pair);
}

constexpr double enough = 1.25;  // computing over transfers, above which waits must disappear
constexpr std::int64_t fewest = 1024, most = 32768;

/// A link cannot be faster than configured, so the part of the transfer that computing does not cover remains as a
/// wait; and if computing takes a quarter longer than the block's transfer, the wait disappears.
bool measure_forward(Communicator& world, const Link& link) {
  if (world.rank() == 0) {
    std::printf("blocks of keys and values over a link of %.0f MB/s and %.0f ms, ring of %d; milliseconds of a hop\n",
                link.bytes_per_second / 1e6, link.delay * 1e3, world.size());
    std::printf("%8s %10s %14s %14s %14s\n", "tokens", "computing", "transfer", "least wait", "wait measured");
  }
  for (std::int64_t T = fewest; T <= most; T *= 2) {
    const auto [computing, waiting] = slowest(world, FullRing(world, T, T).forward());
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
    if (waiting < 0.8 * least - 0.005) return false;  // the link is not as configured
    if (covered || hidden) return hidden;
  }
  return false;
}

/// Backward also moves a block's gradients, which leave when they are computed. If a block's gradients leave all at
/// once, nothing hides them. In parts, they are hidden if computing takes a quarter longer than both transfers of a
/// hop.
bool measure_backward(Communicator& world, const Link& link) {
  if (world.rank() == 0) {
    std::printf("backward: gradients of a whole block at once, and in parts\n%8s %10s %14s %14s %14s\n", "tokens",
                "computing", "one transfer", "wait, whole", "wait, parts");
  }
  for (std::int64_t T = fewest; T <= most; T *= 2) {
    const Times whole = slowest(world, FullRing(world, T, T).backward());
    const Times parts = slowest(world, FullRing(world, T, T / 2).backward());
    const double transfer = transfer_seconds(link, T);
    if (world.rank() == 0) {
      std::printf("%8lld %10.1f %14.1f %14.1f %14.1f\n", static_cast<long long>(T), parts.computing * 1e3,
                  transfer * 1e3, whole.waiting * 1e3, parts.waiting * 1e3);
      std::fflush(stdout);
    }
    if (whole.waiting < 0.8 * transfer - 0.005) return false;  // the link is not as configured
    if (parts.computing >= enough * 2 * transfer) return parts.waiting <= 0.1 * transfer;
  }
  return false;
}

/// Without computing, a hop waits for its whole transfer: for the link's minimum time, and half of it in bfloat16.
bool measure_transfers(Communicator& world, const Link& link) {
  constexpr std::int64_t T = 4096;
  const double predicted = transfer_seconds(link, T);
  const double whole = slowest(world, FullRing(world, T, T).transfers()).waiting;
  const double half = slowest(world, FullRing(world, T, T, DType::bfloat16).transfers()).waiting;
  if (world.rank() == 0) {
    std::printf("a forward hop of %lld tokens at %.1f MB/s: float32 %.0f ms (predicted %.0f), bfloat16 %.0f ms: %.3f\n",
                static_cast<long long>(T), link.bytes_per_second / 1e6, whole * 1e3, predicted * 1e3, half * 1e3,
                half / whole);
    std::fflush(stdout);
  }
  return std::abs(whole / predicted - 1) <= 0.1 && std::abs(half / whole - 0.5) <= 0.03;
}

/// Runs a measurement on a ring of all processes, and ends them. Returns 0 if it returns true, otherwise 1.
template <class Measure>
int run_measurement(Launcher& launcher, const Measure& measure) {
  bool as_predicted = false;
  launcher.launch({.ranks = launcher.processes(), .timeout_seconds = 60, .backend = Backend::mpi},
                  [&](Communicator& world) { as_predicted = measure(world); });
  const int code = as_predicted ? 0 : 1;
  launcher.finish(code);
  return code;
}

}  // namespace

int measure_overlap(Launcher& launcher, const Link& link) {
  return run_measurement(launcher, [&](Communicator& world) {
    const bool forward = measure_forward(world, link), backward = measure_backward(world, link);
    return forward && backward;
  });
}

int measure_transfers(Launcher& launcher, const Link& link) {
  return run_measurement(launcher, [&](Communicator& world) { return measure_transfers(world, link); });
}

}  // namespace ringtrain::testing
