#include "parallel/attention/attention_over_ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "framework/allocator.h"
#include "framework/checks/argument_check.h"
#include "framework/error.h"
#include "framework/system/compute_device.h"
#include "framework/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "parallel/collectives.h"
#include "parallel/launch/agreement.h"
#include "parallel/launch/communicator_factory.h"
#include "parallel/launch/launch.h"
#include "parallel/ring/ring.h"

namespace ringtrain {

namespace {

constexpr double nccl_seconds = 60;  // as mesh.timeout_seconds

/// Returns growing positions as few affine segments.
SegmentList segments_of_positions(std::span<const std::int64_t> positions) {
  SegmentList segments;
  for (const std::int64_t position : positions) {
    if (!segments.empty() && segments.back().count == 1) {
      segments.back().stride = position - segments.back().start;
      segments.back().count = 2;
    } else if (!segments.empty() && segments.back().position(segments.back().count) == position) {
      ++segments.back().count;
    } else {
      segments.push_back({position, 1, 1});
    }
  }
  return segments;
}

/// Returns a position that both segments have, or -1. As the first common element of two arithmetic progressions.
std::int64_t common_position(const Segment& a, const Segment& b) {
  const std::int64_t first = std::max(a.start, b.start), last = std::min(a.last(), b.last());
  const std::int64_t step = std::gcd(a.stride, b.stride);
  if (first > last || (b.start - a.start) % step != 0) return -1;
  const Segment& sparse = a.stride >= b.stride ? a : b;
  const Segment& dense = a.stride >= b.stride ? b : a;
  const std::int64_t period = dense.stride / step;  // of the sparse one's elements, one in so many is the dense one's
  std::int64_t i = std::max<std::int64_t>(0, (first - sparse.start + sparse.stride - 1) / sparse.stride);
  for (std::int64_t tried = 0; tried < period && i < sparse.count && sparse.position(i) <= last; ++tried, ++i) {
    if ((sparse.position(i) - dense.start) % dense.stride == 0) return sparse.position(i);
  }
  return -1;
}

void check_positions(std::span<const std::int64_t> positions, const AttentionOverRingOptions& options,
                     const CallerLine& line) {
  if (std::ssize(positions) > options.T) {
    refuse_call(line, fmt::format("{} positions, but this rank's AttentionOverRing was made for T = {} at most",
                                  positions.size(), options.T));
  }
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const std::int64_t least = i == 0 ? 0 : positions[i - 1] + 1;
    if (positions[i] < least) {
      refuse_call(line, fmt::format("positions[{}] is {}, but must be {} or more: positions grow from 0", i,
                                    positions[i], least));
    }
  }
}

void check_documents(std::span<const std::int32_t> documents, std::int64_t B, std::int64_t T, const CallerLine& line) {
  if (documents.empty()) return;
  if (std::ssize(documents) != B * T) {
    refuse_call(
        line, fmt::format("{} document ids, but must be none or B * T = {} * {} = {}", documents.size(), B, T, B * T));
  }
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t t = 1; t < T; ++t) {
      const std::int32_t before = documents[b * T + t - 1], id = documents[b * T + t];
      if (id < before) {
        refuse_call(line, fmt::format("documents[{}, {}] is {} after {}: ids do not decrease along a sequence", b, t,
                                      id, before));
      }
    }
  }
}

/// Returns every rank's values, of any number.
std::vector<std::vector<std::int64_t>> gather_lists(Communicator& ranks, std::vector<std::int64_t> values,
                                                    const CallSite& site) {
  const std::array<std::int64_t, 1> own{std::ssize(values)};
  const std::vector<std::int64_t> sizes = all_gather(ranks, own, site);
  const std::int64_t longest = *std::ranges::max_element(sizes);
  std::vector<std::vector<std::int64_t>> lists(sizes.size());
  if (longest == 0) return lists;
  values.resize(longest);
  const std::vector<std::int64_t> all = all_gather(ranks, values, site);
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank) * longest;
    lists[rank].assign(begin, begin + sizes[rank]);
  }
  return lists;
}

/// What all ranks must have alike.
void check_options(const AttentionOverRingOptions& o, Communicator& ranks) {
  if (o.B < 1 || o.T < 0 || o.H < 1 || o.G < 1 || o.D < 1 || o.H % o.G != 0) {
    fail(ExitCode::usage,
         "AttentionOverRing of B = {}, T = {}, H = {}, G = {}, D = {}: B, H, G and D must be 1 or more, T 0 or more, "
         "and H a multiple of G",
         o.B, o.T, o.H, o.G, o.D);
  }
  const bool floating =
      o.dtype == DType::float32 || o.dtype == DType::bfloat16 || (o.dtype == DType::float64 && o.device.is_cpu());
  if (!floating) {
    fail(ExitCode::usage, "AttentionOverRing on {} takes {}float32 or bfloat16, but not {}", o.device.name(),
         o.device.is_cpu() ? "float64, " : "", name_of(o.dtype));
  }
  require_agreement(ranks, {{"B", std::to_string(o.B)},
                            {"H", std::to_string(o.H)},
                            {"G", std::to_string(o.G)},
                            {"D", std::to_string(o.D)},
                            {"dtype", name_of(o.dtype)},
                            {"device", o.device.is_cpu() ? "cpu" : "cuda"},
                            {"scale", fmt::format("{}", o.scale)},
                            {"backward", o.backward ? "true" : "false"}});
}

std::int64_t largest_anywhere(Communicator& ranks, std::int64_t value) {
  std::array<std::int64_t, 1> values{value};
  all_reduce_max(ranks, values, {"the largest shard"});
  return values[0];
}

/// Throws if two ranks have a token. Goes through the segments by their first positions, so that only those are
/// compared whose positions reach into each other's.
void check_apart(const std::vector<SegmentList>& segments, const CallerLine& line) {
  struct Held {
    Segment segment;
    std::size_t rank;
  };
  std::vector<Held> all, open;
  for (std::size_t rank = 0; rank < segments.size(); ++rank) {
    for (const Segment& segment : segments[rank]) all.push_back({segment, rank});
  }
  std::ranges::sort(all, {}, [](const Held& one) { return std::pair(one.segment.start, one.rank); });
  for (const Held& next : all) {
    std::erase_if(open, [&](const Held& one) { return one.segment.last() < next.segment.start; });
    for (const Held& one : open) {
      const std::int64_t both = one.rank == next.rank ? -1 : common_position(one.segment, next.segment);
      if (both < 0) continue;
      refuse_call(line, fmt::format("ranks {} and {} both have the token at position {}", std::min(one.rank, next.rank),
                                    std::max(one.rank, next.rank), both));
    }
    open.push_back(next);
  }
}

}  // namespace

struct AttentionOverRing::State {
  State(Communicator& world, const AttentionOverRingOptions& given)
      : options(given),
        pool(threads_per_rank(given.threads, world.size())),
        allocator(given.device),
        compute(allocator, pool, nullptr),
        stream(compute.stream()),
        gpus(make_device_communicator(Backend::automatic, world, stream, nccl_seconds, nullptr)),
        ranks((gpus ? *gpus : world).split(0)),
        host_ranks(world.split(0)) {
    const auto& [B, T, H, G, D, dtype, device, scale, backward, deterministic, threads] = options;
    ranks->set_stream(stream);
    const std::int64_t longest = largest_anywhere(*host_ranks, T);
    const DType sums = accumulator(dtype);
    ring = std::make_unique<Ring>(allocator, ranks.get(), ranks->size(),
                                  RingCapacity{.tokens = B * longest,
                                               .gradient_tokens = backward ? B * longest : 0,
                                               .G = G,
                                               .D = D,
                                               .dtype = dtype,
                                               .backward = backward});
    shape = {.B = B,
             .H = H,
             .G = G,
             .D = D,
             .scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(D)),
             .mask = {},
             .deterministic = deterministic};
    const auto make = [&](const char* name, DType type, const Shape& of) {
      return allocator.make(Tag::activations, name, type, of);
    };
    key_value = make("keys and values", dtype, {2, B, T, G, D});
    documents = make("document ids", DType::int32, {B, T});
    row_sum = make("row sums", sums, {B, H, T});
    if (sums != dtype) wide = make("sums of rows", sums, {B, T, H, D});  // else the caller's tensor serves
    if (backward) {
      key_value_gradient = make("gradients of keys and values", sums, {2, B, T, G, D});
      delta = make("delta", sums, {B, H, T});
    }
    const auto bytes = static_cast<std::int64_t>(attention_workspace_bytes(stream, shape, dtype, T, longest));
    workspace = allocator.make(Tag::workspace, "attention", DType::uint8, {bytes});
  }

  /// Calls pass() with the ring's acts; the first of a kind in lockstep. passed: whether there was one.
  template <class Pass>
  void through_ring(bool& passed, const Pass& pass) {
    const bool first = gpus && !std::exchange(passed, true);
    if (first) gpus->set_lockstep(true);
    pass();
    if (first) gpus->set_lockstep(false);
  }
  /// Returns the tokens of each sequence now.
  std::int64_t T() const { return token_count(segments[ranks->rank()]); }
  /// Copies own keys and values to where the ring sends them from, and returns them as [2, B, T, G, D].
  TensorView load(const ConstTensorView& k, const ConstTensorView& v) {
    const TensorView both = key_value.view().prefix({2, shape.B, T(), shape.G, shape.D});
    copy(stream, both.select(0), k);
    copy(stream, both.select(1), v);
    return both;
  }
  TensorView own_documents() const { return with_documents ? documents.view().prefix({shape.B, T()}) : TensorView{}; }
  AttentionTokens own_tokens() const { return {segments[ranks->rank()], own_documents()}; }
  /// Throws if set_tokens has not been called.
  void require_tokens(const CallerLine& line) const {
    if (segments.empty()) {
      refuse_call(line, "AttentionOverRing::set_tokens comes before forward and backward");
    }
  }

  AttentionOverRingOptions options;
  ThreadPool pool;
  Allocator allocator;
  ComputeDevice compute;
  Stream& stream;
  std::unique_ptr<Communicator> gpus;   // null: the caller's communicator carries GPU memory, or there is none
  std::unique_ptr<Communicator> ranks;  // of the ring
  std::unique_ptr<Communicator> host_ranks;
  std::unique_ptr<Ring> ring;
  AttentionShape shape;
  Tensor key_value, documents, row_sum, wide, key_value_gradient, delta, workspace;
  std::vector<SegmentList> segments;  // by rank; none before set_tokens
  bool with_documents = false;
  bool went_forward = false, went_backward = false;
};

AttentionOverRing::AttentionOverRing(Communicator& ranks, const AttentionOverRingOptions& options) {
  check_options(options, ranks);
  state_ = std::make_unique<State>(ranks, options);
}

AttentionOverRing::~AttentionOverRing() = default;

void AttentionOverRing::set_tokens(std::span<const std::int64_t> positions, std::span<const std::int32_t> documents,
                                   const AttentionMask& mask, const CallerLine& line) {
  State& s = *state_;
  const std::int64_t B = s.options.B, T = std::ssize(positions);
  check_positions(positions, s.options, line);
  check_documents(documents, B, T, line);
  // Each rank tells: mask, whether it has documents, then its segments, and of each sequence the documents of each.
  const SegmentList own = segments_of_positions(positions);
  std::vector<std::int64_t> told{mask.causal, mask.window, T == 0 ? -1 : !documents.empty(), std::ssize(own)};
  for (const Segment& segment : own) told.insert(told.end(), {segment.start, segment.stride, segment.count});
  for (std::int64_t b = 0; b < B; ++b) {
    std::int64_t first = b * T;
    for (const Segment& segment : own) {
      const std::int64_t last = first + segment.count - 1;
      if (documents.empty()) {
        told.insert(told.end(), {0, 0});
      } else {
        told.insert(told.end(), {documents[first], documents[last]});
      }
      first = last + 1;
    }
  }
  const auto all = gather_lists(*s.host_ranks, std::move(told), {"tokens of all ranks"});

  std::vector<SegmentList> segments;
  std::vector<ShardExtents> extents;
  std::int64_t with_documents = -1;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    auto next = all[rank].begin();
    const bool causal = *next++ != 0;
    const std::int64_t window = *next++, has_documents = *next++, count = *next++;
    if (AttentionMask{causal, window} != mask) {
      refuse_call(line,
                  fmt::format("rank {} has the mask causal = {}, window = {}, but rank {} causal = {}, window = {}",
                              s.ranks->rank(), mask.causal, mask.window, rank, causal, window));
    }
    if (has_documents >= 0 && with_documents >= 0 && has_documents != with_documents) {
      refuse_call(
          line, fmt::format("some ranks have document ids, others (rank {}) have none", has_documents == 0 ? rank : 0));
    }
    if (has_documents >= 0) with_documents = has_documents;
    SegmentList& of_rank = segments.emplace_back();
    for (std::int64_t i = 0; i < count; ++i, next += 3) of_rank.push_back({next[0], next[1], next[2]});
    ShardExtents& extent = extents.emplace_back(B);
    for (auto& of_sequence : extent) {
      for (const Segment& segment : of_rank) {
        of_sequence.push_back(
            {segment.start, segment.last(), static_cast<std::int32_t>(next[0]), static_cast<std::int32_t>(next[1])});
        next += 2;
      }
    }
  }
  check_apart(segments, line);
  s.segments = std::move(segments);
  s.with_documents = with_documents > 0;
  s.shape.mask = mask;
  if (s.with_documents && T > 0) {
    copy(s.stream, s.own_documents(), host_view(documents.data(), {B, T}));
    s.stream.synchronize();  // the caller's memory may change
  }
  s.ring->begin(mask, extents, s.segments, B);
}

void AttentionOverRing::forward(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
                                const TensorView& out, const TensorView& lse, const CallerLine& line) {
  State& s = *state_;
  const auto& [B, H, G, D, scale, mask, deterministic, softcap] = s.shape;
  const DType dtype = s.options.dtype, sums = accumulator(dtype);
  const Device device = s.options.device;
  s.require_tokens(line);
  const std::int64_t T = s.T();
  require_argument(q, "q", {{"B", B}, {"T", T}, {"H", H}, {"D", D}}, dtype, device, line);
  require_argument(k, "k", {{"B", B}, {"T", T}, {"G", G}, {"D", D}}, dtype, device, line);
  require_argument(v, "v", {{"B", B}, {"T", T}, {"G", G}, {"D", D}}, dtype, device, line);
  require_argument(out, "out", {{"B", B}, {"T", T}, {"H", H}, {"D", D}}, dtype, device, line);
  require_argument(lse, "lse", {{"B", B}, {"H", H}, {"T", T}}, sums, device, line);
  const TensorView kv = s.load(k, v);
  const AttentionState state{
      .o = s.wide.empty() ? out : s.wide.view().prefix(out.shape), .m = lse, .l = s.row_sum.view().prefix(lse.shape)};
  const auto visit = [&](const RingBlock& block) {
    const AttentionPhase phase{.init = block.first, .finalize = block.last, .out = out, .lse = lse};
    attention_forward(s.stream, s.shape, q, block.k, block.v, s.own_tokens(), block.tokens, state, phase, s.workspace);
  };
  s.through_ring(s.went_forward, [&] { s.ring->forward(s.stream, /*layer=*/0, kv, s.own_documents(), visit); });
  s.stream.synchronize();
}

void AttentionOverRing::backward(const ConstTensorView& dout, const ConstTensorView& q, const ConstTensorView& k,
                                 const ConstTensorView& v, const ConstTensorView& out, const ConstTensorView& lse,
                                 const TensorView& dq, const TensorView& dk, const TensorView& dv,
                                 const CallerLine& line) {
  State& s = *state_;
  const auto& [B, H, G, D, scale, mask, deterministic, softcap] = s.shape;
  const DType dtype = s.options.dtype, sums = accumulator(dtype);
  const Device device = s.options.device;
  if (!s.options.backward) {
    refuse_call(line, "this AttentionOverRing was made without memory for backward");
  }
  s.require_tokens(line);
  const std::int64_t T = s.T();
  for (const auto& [name, x] : {std::pair{"dout", dout}, {"q", q}, {"out", out}, {"dq", dq}}) {
    require_argument(x, name, {{"B", B}, {"T", T}, {"H", H}, {"D", D}}, dtype, device, line);
  }
  for (const auto& [name, x] : {std::pair{"k", k}, {"v", v}, {"dk", dk}, {"dv", dv}}) {
    require_argument(x, name, {{"B", B}, {"T", T}, {"G", G}, {"D", D}}, dtype, device, line);
  }
  require_argument(lse, "lse", {{"B", B}, {"H", H}, {"T", T}}, sums, device, line);
  const TensorView kv = s.load(k, v);
  const TensorView delta = s.delta.view().prefix(lse.shape);
  const TensorView dkv = s.key_value_gradient.view().prefix(kv.shape);
  const TensorView dq_sum = s.wide.empty() ? dq : s.wide.view().prefix(dq.shape);
  attention_delta(s.stream, delta, dout, out);
  fill(s.stream, dq_sum, 0);
  const auto visit = [&](const RingBlock& block) {
    if (block.pairs == 0) return;  // a part that no query here sees
    AttentionShape shape = s.shape;
    shape.B = block.sequences;
    const auto of = [&](const ConstTensorView& x) { return block.sequences_of(x); };
    const AttentionTokens own{s.own_tokens().segments, block.sequences_of(s.own_documents())};
    attention_backward(s.stream, shape, of(q), block.k, block.v, of(dout), of(lse), of(delta), own, block.tokens,
                       block.sequences_of(dq_sum), block.dk, block.dv, s.workspace, block.accumulate);
  };
  s.through_ring(s.went_backward, [&] { s.ring->backward(s.stream, /*layer=*/0, kv, s.own_documents(), dkv, visit); });
  convert(s.stream, dq, dq_sum);
  convert(s.stream, dk, dkv.select(0));
  convert(s.stream, dv, dkv.select(1));
  s.stream.synchronize();
}

std::size_t AttentionOverRing::bytes() const {
  return state_->allocator.current().total;
}

void AttentionOverRing::close() {
  if (state_->gpus) state_->gpus->close();
}

std::vector<std::int64_t> shard_positions(Layout layout, std::int64_t length, int ranks, int rank,
                                          const CallerLine& line) {
  std::vector<std::int64_t> positions;
  for (const Segment& segment : shard_segments(layout, length, ranks, rank, line)) {
    for (std::int64_t i = 0; i < segment.count; ++i) positions.push_back(segment.position(i));
  }
  return positions;
}

}  // namespace ringtrain
