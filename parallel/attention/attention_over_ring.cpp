#include "parallel/attention/attention_over_ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "framework/allocator.h"
#include "framework/checks/argument_check.h"
#include "framework/error.h"
#include "framework/system/compute_device.h"
#include "framework/thread_pool.h"
#include "kernels/elementwise.h"
#include "parallel/attention/attention_call.h"
#include "parallel/collectives.h"
#include "parallel/launch/agreement.h"
#include "parallel/launch/communicator_factory.h"
#include "parallel/launch/launch.h"

namespace ringtrain {

namespace {

/// Returns increasing positions as few affine segments.
SegmentList segments_of_positions(std::span<const std::int64_t> positions) {
  SegmentList segments;
  for (const std::int64_t position : positions) {
    if (!segments.empty() && segments.back().count == 1 && position - segments.back().start < stride_bound) {
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

/// Returns the extents of a rank's segments: [B * segments].
std::vector<SegmentExtent> extents_of(const SegmentList& segments, std::span<const std::int32_t> documents,
                                      std::int64_t B) {
  std::vector<SegmentExtent> extents;
  std::int64_t first = 0;  // index of a token over all sequences
  for (std::int64_t b = 0; b < B; ++b) {
    for (const Segment& segment : segments) {
      const std::int64_t last = first + segment.count - 1;
      extents.push_back({segment.start, segment.last()});
      if (!documents.empty()) {
        extents.back().first_document = documents[first];
        extents.back().last_document = documents[last];
      }
      first = last + 1;
    }
  }
  return extents;
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
    refuse_call(line,
                fmt::format("got {} document ids, but need 0 or B * T = {} * {} = {}", documents.size(), B, T, B * T));
  }
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t t = 1; t < T; ++t) {
      const std::int32_t before = documents[b * T + t - 1], id = documents[b * T + t];
      if (id < before) {
        refuse_call(line, fmt::format("documents[{}, {}] is {} after {}: ids must not decrease along a sequence", b, t,
                                      id, before));
      }
    }
  }
}

/// Returns the values of every rank; their number may differ from rank to rank.
template <class T>
std::vector<std::vector<T>> gather_lists(Communicator& ranks, const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::int64_t) == 0);
  constexpr CallSite site{"tokens of all ranks"};
  const std::vector<std::int64_t> sizes = all_gather(ranks, std::array<std::int64_t, 1>{std::ssize(values)}, site);
  const std::size_t longest = sizeof(T) * static_cast<std::size_t>(*std::ranges::max_element(sizes));
  std::vector<std::int64_t> words(longest / sizeof(std::int64_t));
  std::ranges::copy(std::as_bytes(std::span(values)), std::as_writable_bytes(std::span(words)).begin());
  const std::vector<std::int64_t> all = all_gather(ranks, words, site);
  std::vector<std::vector<T>> lists;
  for (const std::int64_t size : sizes) {
    const auto begin = std::as_bytes(std::span(all)).begin() + static_cast<std::ptrdiff_t>(longest * lists.size());
    std::vector<T>& list = lists.emplace_back(size);
    std::copy_n(begin, sizeof(T) * list.size(), std::as_writable_bytes(std::span(list)).begin());
  }
  return lists;
}

/// Checks that all ranks have the same options.
void check_options(const AttentionOverRingOptions& o, Communicator& ranks) {
  if (o.B < 1 || o.T < 0 || o.H < 1 || o.G < 1 || o.D < 1 || o.H % o.G != 0) {
    fail(ExitCode::usage,
         "AttentionOverRing of B = {}, T = {}, H = {}, G = {}, D = {}: B, H, G and D must be 1 or more, T 0 or more, "
         "and H a multiple of G",
         o.B, o.T, o.H, o.G, o.D);
  }
  if (!(o.scale >= 0) || std::isinf(o.scale)) {
    fail(ExitCode::usage, "AttentionOverRing has scale {}; it must be finite and > 0, or 0 for 1 / sqrt(D)", o.scale);
  }
  if (!(o.timeout_seconds > 0)) {
    fail(ExitCode::usage, "AttentionOverRing has timeout_seconds {}; it must be > 0", o.timeout_seconds);
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
                            {"backward", o.backward ? "true" : "false"},
                            {"deterministic", o.deterministic ? "true" : "false"}});
}

bool share_memory(const ConstTensorView& a, const ConstTensorView& b) {
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data), begin_b = reinterpret_cast<std::uintptr_t>(b.data);
  return begin_a < begin_b + b.bytes() && begin_b < begin_a + a.bytes();
}

constexpr std::int64_t no_tokens = -1;

/// Throws if the masks of ranks differ, or only some ranks have document ids. gathered [ranks, 3]: causal, window, and
/// whether a rank has ids, or no_tokens. Returns whether they have them.
bool check_alike(std::span<const std::int64_t> gathered, int rank, const CallerLine& line) {
  const auto ours = gathered.subspan(3 * static_cast<std::size_t>(rank), 3);
  std::int64_t with_documents = no_tokens;
  std::size_t without = 0;
  for (std::size_t other = 0; other < gathered.size() / 3; ++other) {
    const auto theirs = gathered.subspan(3 * other, 3);
    if (theirs[0] != ours[0] || theirs[1] != ours[1]) {
      refuse_call(line, fmt::format("rank {} has the mask causal = {}, window = {}, but rank {} has causal = {}, "
                                    "window = {}; give all ranks the same mask",
                                    rank, ours[0] != 0, ours[1], other, theirs[0] != 0, theirs[1]));
    }
    if (theirs[2] == no_tokens) continue;
    if (theirs[2] == 0) without = other;
    if (with_documents != no_tokens && theirs[2] != with_documents) {
      refuse_call(line, fmt::format("some ranks have document ids, but rank {} has none", without));
    }
    with_documents = theirs[2];
  }
  return with_documents > 0;
}

/// Throws if two ranks have the same token.
void check_apart(const std::vector<SegmentList>& segments, const CallerLine& line) {
  constexpr AttentionMask same_position{.causal = false, .window = 1};
  for (std::size_t high = 1; high < segments.size(); ++high) {
    for (std::size_t low = 0; low < high; ++low) {
      if (visible_pairs(same_position, segments[low], segments[high]) == 0) continue;
      Segment token{.start = position_of(segments[low], 0), .count = 1};
      for (std::int64_t t = 1; visible_pairs(same_position, {&token, 1}, segments[high]) == 0; ++t) {
        token.start = position_of(segments[low], t);
      }
      refuse_call(line, fmt::format("ranks {} and {} both have the token at position {}", low, high, token.start));
    }
  }
}

}  // namespace

struct AttentionOverRing::State {
  using Named = std::pair<const char*, ConstTensorView>;

  State(Communicator& world, const AttentionOverRingOptions& given)
      : options(given),
        pool(threads_per_rank(given.threads, world.size())),
        allocator(given.device),
        compute(allocator, pool, nullptr),
        stream(compute.stream()),
        gpus(make_device_communicator({.timeout_seconds = given.timeout_seconds}, world, stream, nullptr)),
        ranks((gpus ? *gpus : world).split(0)) {
    const auto& [B, T, H, G, D, dtype, device, scale, backward, deterministic, threads, timeout] = options;
    ranks->set_stream(stream);
    std::int64_t longest = T;
    all_reduce_max(*ranks, {&longest, 1}, {"the largest shard"});
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
    const auto make = [&](const char* name, DType type, const Shape& dims) {
      return allocator.make(Tag::activations, name, type, dims);
    };
    key_value = make("keys and values", dtype, {2, B, T, G, D});
    documents = make("document ids", DType::int32, {B, T});
    row_sum = make("row sums", sums, {B, H, T});
    if (sums != dtype) wide = make("sums of rows", sums, {B, T, H, D});  // otherwise the caller's tensor is used
    if (backward) {
      key_value_gradient = make("gradients of keys and values", sums, {2, B, T, G, D});
      delta = make("delta", sums, {B, H, T});
    }
    const auto bytes = static_cast<std::int64_t>(attention_workspace_bytes(stream, shape, dtype, T, longest));
    workspace = allocator.make(Tag::workspace, "attention", DType::uint8, {bytes});
  }

  /// Calls pass() with the ring's operations; the first pass of each kind runs in lockstep. passed: whether there was
  /// one.
  template <class Pass>
  void through_ring(bool& passed, const Pass& pass) {
    const bool first = gpus && !std::exchange(passed, true);
    if (first) gpus->set_lockstep(true);
    pass();
    if (first) gpus->set_lockstep(false);
  }
  /// Refuses a call before set_tokens, tensors that do not match those tokens, and outputs that overlap inputs.
  void check(const std::vector<Named>& of_queries, const std::vector<Named>& of_keys, const ConstTensorView& lse,
             const std::set<std::string_view>& written, const CallerLine& line) const {
    require_call(has_tokens, "AttentionOverRing::set_tokens must be called before forward and backward", line);
    const auto& [B, T_max, H, G, D, dtype, device, scale, backward, deterministic, threads, timeout] = options;
    const std::int64_t T = token_count(own_segments);
    for (const auto& [name, x] : of_queries) {
      require_argument(x, name, {{"B", B}, {"T", T}, {"H", H}, {"D", D}}, dtype, device, line);
    }
    for (const auto& [name, x] : of_keys) {
      require_argument(x, name, {{"B", B}, {"T", T}, {"G", G}, {"D", D}}, dtype, device, line);
    }
    require_argument(lse, "lse", {{"B", B}, {"H", H}, {"T", T}}, accumulator(dtype), device, line);
    std::vector<Named> all{{"lse", lse}};
    for (const auto& some : {of_queries, of_keys}) all.insert(all.end(), some.begin(), some.end());
    for (const auto& [name, x] : all) {
      for (const auto& [other, y] : all) {
        if (name == other || !written.contains(name) || !share_memory(x, y)) continue;
        refuse_call(line,
                    fmt::format("{} shares memory with {}: an output must not overlap any other tensor", name, other));
      }
    }
  }
  /// Copies this rank's keys and values to the buffer from which the ring sends them.
  AttentionCall call(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v) {
    const TensorView both = key_value.view().prefix({2, shape.B, token_count(own_segments), shape.G, shape.D});
    copy(stream, both.select(0), k);
    copy(stream, both.select(1), v);
    return {stream, *ring, /*layer=*/0, shape, q, both, own_segments, own_documents, workspace};
  }
  /// Returns the buffer for sums of rows [B, T, H, D], from which x is rounded: x itself if it has their type.
  TensorView sums_of(const TensorView& x) const { return wide.empty() ? x : wide.view().prefix(x.shape); }

  AttentionOverRingOptions options;
  ThreadPool pool;
  Allocator allocator;
  ComputeDevice compute;
  Stream& stream;
  std::shared_ptr<Communicator> gpus;   // null: the caller's communicator transfers GPU memory, or there is none
  std::unique_ptr<Communicator> ranks;  // of the ring
  std::unique_ptr<Ring> ring;
  AttentionShape shape;
  Tensor key_value, documents, row_sum, wide, key_value_gradient, delta, workspace;
  SegmentList own_segments;
  TensorView own_documents;
  bool has_tokens = false;
  bool went_forward = false, went_backward = false, closed = false;
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
  require_call(!s.closed, "AttentionOverRing was already closed", line);
  check_positions(positions, s.options, line);
  check_documents(documents, B, T, line);
  SegmentList own_segments = segments_of_positions(positions);
  if (std::ssize(own_segments) > most_segments) {
    refuse_call(line, fmt::format("positions form {} segments of evenly spaced tokens, each with a stride below {}, "
                                  "but attention takes at most {} segments",
                                  own_segments.size(), stride_bound, most_segments));
  }
  require_call(mask.window >= 0, "the mask's window must be 0 or more", line);
  const std::array<std::int64_t, 3> gathered{mask.causal, mask.window, T == 0 ? no_tokens : !documents.empty()};
  const bool with_documents =
      check_alike(all_gather(*s.ranks, gathered, {"tokens of all ranks"}), s.ranks->rank(), line);
  const std::vector<SegmentList> segments = gather_lists(*s.ranks, own_segments);
  std::vector<ShardExtents> extents;
  for (const auto& flat : gather_lists(*s.ranks, extents_of(own_segments, documents, B))) {
    const std::ptrdiff_t count = std::ssize(flat) / B;
    ShardExtents& shard = extents.emplace_back();
    for (auto at = flat.begin(); std::ssize(shard) < B; at += count) shard.emplace_back(at, at + count);
  }
  check_apart(segments, line);
  s.ring->begin(mask, extents, segments, B);
  s.has_tokens = true;
  s.own_segments = std::move(own_segments);
  s.shape.mask = mask;
  s.own_documents = with_documents ? s.documents.view().prefix({B, T}) : TensorView{};
  if (with_documents && T > 0) {
    copy(s.stream, s.own_documents, host_view(documents.data(), {B, T}));
    s.stream.synchronize();  // the caller's memory may change
  }
}

void AttentionOverRing::forward(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
                                const TensorView& out, const TensorView& lse, const CallerLine& line) {
  State& s = *state_;
  s.check({{"q", q}, {"out", out}}, {{"k", k}, {"v", v}}, lse, {"out", "lse"}, line);
  const AttentionCall call = s.call(q, k, v);
  const AttentionState state{.o = s.sums_of(out), .m = lse, .l = s.row_sum.view().prefix(lse.shape)};
  s.through_ring(s.went_forward, [&] { call.forward(state, {.finalize = true, .out = out, .lse = lse}); });
  s.stream.synchronize();
}

void AttentionOverRing::backward(const ConstTensorView& dout, const ConstTensorView& q, const ConstTensorView& k,
                                 const ConstTensorView& v, const ConstTensorView& out, const ConstTensorView& lse,
                                 const TensorView& dq, const TensorView& dk, const TensorView& dv,
                                 const CallerLine& line) {
  State& s = *state_;
  require_call(s.options.backward, "backward needs an AttentionOverRing with options.backward set", line);
  s.check({{"dout", dout}, {"q", q}, {"out", out}, {"dq", dq}}, {{"k", k}, {"v", v}, {"dk", dk}, {"dv", dv}}, lse,
          {"dq", "dk", "dv"}, line);
  const AttentionCall call = s.call(q, k, v);
  const AttentionGradients gradients{.dout = dout,
                                     .lse = lse,
                                     .delta = s.delta.view().prefix(lse.shape),
                                     .dq = s.sums_of(dq),
                                     .dkv = s.key_value_gradient.view().prefix(call.key_value.shape)};
  attention_delta(s.stream, s.delta.view().prefix(lse.shape), dout, out);
  s.through_ring(s.went_backward, [&] { call.backward(gradients); });
  convert(s.stream, dq, gradients.dq);
  convert(s.stream, dk, gradients.dkv.select(0));
  convert(s.stream, dv, gradients.dkv.select(1));
  s.stream.synchronize();
}

std::size_t AttentionOverRing::bytes() const {
  return state_->allocator.current().total;
}

void AttentionOverRing::close() {
  state_->closed = true;
  state_->has_tokens = false;
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
