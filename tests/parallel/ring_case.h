// One attention problem, cut over a ring of ranks in any layout, run forward and backward on any device, and joined
// again, for comparisons of ring tests with the reference and with each other.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/kept_free.h"
#include "parallel/ring/ring.h"
#include "reference/attention.h"
#include "tests/parallel/run_ranks.h"
#include "tests/parallel/watched_communicator.h"
#include "tests/support/attention_state.h"
#include "tests/support/shards.h"

namespace ringtrain::testing {

struct Problem {
  std::int64_t S = 1, B = 1, H = 1, G = 1, D = 8;
  AttentionMask mask;
  bool with_documents = false;

  std::vector<double> q = {}, dout = {};     // [B, S, H, D]
  std::vector<double> k = {}, v = {};        // [B, S, G, D]
  std::vector<std::int32_t> documents = {};  // [B, S] or empty

  double scale() const { return 0.7 / static_cast<double>(D); }
  std::string name() const {
    return "S " + std::to_string(S) + ", B " + std::to_string(B) + ", H " + std::to_string(H) + ", G " +
           std::to_string(G) + (mask.causal ? ", causal" : ", bidirectional") + ", window " +
           std::to_string(mask.window) + (with_documents ? ", documents" : "");
  }
};

/// Calls body(local index, global index) for each element of [B, T, heads, D], a shard's, and [B, S, heads, D].
template <class Body>
void each_element(const Problem& p, const SegmentList& shard, std::int64_t heads, const Body& body) {
  const std::int64_t T = token_count(shard), width = heads * p.D;
  for (std::int64_t b = 0; b < p.B; ++b) {
    for (std::int64_t t = 0; t < T; ++t) {
      const std::int64_t from = (b * p.S + position_of(shard, t)) * width, to = (b * T + t) * width;
      for (std::int64_t i = 0; i < width; ++i)
        body(static_cast<std::size_t>(to + i), static_cast<std::size_t>(from + i));
    }
  }
}

/// Fills a problem whose sizes and mask are set.
inline void make_inputs(Problem& p, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, 1.5);
  const auto fill_random = [&](std::vector<double>& x, std::int64_t heads) {
    x.resize(p.B * p.S * heads * p.D);
    for (double& value : x) value = normal(random);
  };
  fill_random(p.q, p.H);
  fill_random(p.dout, p.H);
  fill_random(p.k, p.G);
  fill_random(p.v, p.G);
  p.documents.clear();
  if (!p.with_documents) return;
  for (std::int64_t b = 0; b < p.B; ++b) {  // some with one token, some long
    std::int32_t document = 0;
    std::int64_t left = 1 + random() % 9;
    for (std::int64_t i = 0; i < p.S; ++i) {
      if (left-- == 0) {
        ++document;
        left = random() % 3 == 0 ? 0 : static_cast<std::int64_t>(random() % 40);
      }
      p.documents.push_back(document);
    }
  }
}

struct Result {
  std::vector<double> out, lse, dq, dk, dv;  // float results convert exactly
  bool operator==(const Result&) const = default;

  /// Returns NaNs, which the ranks of a problem overwrite.
  static Result of(const Problem& p) {
    const std::vector<double> queries(p.q.size(), NAN), keys(p.k.size(), NAN);
    return {queries, std::vector<double>(p.B * p.H * p.S, NAN), queries, keys, keys};
  }
  void unite_ranks() {
    for (auto* values : {&out, &lse, &dq, &dk, &dv}) unite(*values);
  }
};

inline Result reference_result(const Problem& p) {
  reference::Tokens tokens;
  for (std::int64_t i = 0; i < p.S; ++i) tokens.positions.push_back(i);
  tokens.documents = p.documents;
  const reference::Attention attention{p.B, p.H, p.G, p.D, p.scale(), p.mask.causal, p.mask.window, 0, {}};
  auto forward = reference::forward(attention, p.q, p.k, p.v, tokens, tokens);
  auto backward = reference::backward(attention, p.q, p.k, p.v, forward.out, p.dout, tokens, tokens);
  return {std::move(forward.out), std::move(forward.lse), std::move(backward.dq), std::move(backward.dk),
          std::move(backward.dv)};
}

/// Infinite values must agree.
inline double worst_difference(const std::vector<double>& found, const std::vector<double>& expected) {
  double worst = found.size() == expected.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < found.size() && i < expected.size(); ++i) {
    const double difference = found[i] == expected[i] ? 0 : std::abs(found[i] - expected[i]);
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
  }
  return worst;
}

struct RunOptions {
  int N = 1;
  Layout layout = Layout::contiguous;
  DType dtype = DType::float64;
  unsigned jitter_seed = 0;
  int passes = 1;                           // the results of the last one are used
  std::int64_t min_part = 0;                // of a block in backward; 0: the ring's own
  std::vector<Traffic>* traffic = nullptr;  // [N], of all passes
};

/// Returns value as stored in a tensor of T.
template <class T>
T stored_as(double value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16::rounded(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

/// Makes the inputs exactly representable in T, so that errors are those of the computation.
template <class T>
void round_inputs(Problem& p) {
  for (auto* x : {&p.q, &p.k, &p.v, &p.dout}) {
    for (double& value : *x) value = static_cast<double>(widened(stored_as<T>(value)));
  }
}

/// A rank's tensors of backward, over all sequences.
struct QuerySide {
  TensorView q, dout, lse, delta, dq;
};

/// Adds a block's share, or that of a part, to dq, dk, and dv.
inline void add_gradients(Stream& stream, AttentionShape shape, const RingBlock& block, const QuerySide& all,
                          const AttentionTokens& own, const TensorView& workspace) {
  const auto of = [&](const auto& x) { return block.sequences_of(x); };
  shape.B = block.sequences;
  attention_backward(stream, shape, of(all.q), block.k, block.v, of(all.dout), of(all.lse), of(all.delta),
                     {own.segments, of(own.documents)}, block.tokens, of(all.dq), block.dk, block.dv, workspace,
                     block.accumulate);
}

/// Numbers are stored as T, and sums are A, on the stream's device.
template <class T, class A>
class RankRun {
 public:
  RankRun(const Problem& p, const RunOptions& options, Allocator& allocator, Stream& stream, Communicator& ranks,
          Result& result)
      : p_(p),
        stream_(stream),
        allocator_(allocator),
        ranks_(ranks),
        result_(result),
        shards_(shards_of(options.layout, p.S, options.N, p.B, p.documents)),
        own_(shards_.segments[ranks.rank()]),
        T_(token_count(own_)) {
    for (const SegmentList& shard : shards_.segments) max_tokens_ = std::max(max_tokens_, token_count(shard));
    allocate();
    ring_ = std::make_unique<Ring>(allocator, &ranks, options.N,
                                   RingCapacity{.tokens = p.B * max_tokens_,
                                                .gradient_tokens = p.B * max_tokens_,
                                                .G = p.G,
                                                .D = p.D,
                                                .dtype = DTypeOf<T>::value,
                                                .documents = p.with_documents,
                                                .min_part = options.min_part});
    const std::int64_t allocations = allocator_.allocation_count();
    for (int pass = 0; pass < options.passes; ++pass) run(pass);
    ensure(allocator_.allocation_count() == allocations, "a pass allocates nothing");
  }

 private:
  Tensor make(const char* name, DType dtype, const Shape& shape) {
    return allocator_.make(Tag::activations, name, dtype, shape);
  }
  void allocate() {
    const DType dtype = DTypeOf<T>::value, sums = DTypeOf<A>::value;
    const Shape heads{p_.B, T_, p_.H, p_.D}, rows{p_.B, p_.H, T_}, pair{2, p_.B, T_, p_.G, p_.D};
    q_ = make("q", dtype, heads);
    o_ = make("o", sums, heads);
    if (sums != dtype) rounded_out_ = make("out", dtype, heads);
    dout_ = make("dout", dtype, heads);
    dq_ = make("dq", sums, heads);
    m_ = make("m", sums, rows);
    l_ = make("l", sums, rows);
    kv_ = make("kv", dtype, pair);
    dkv_ = make("dkv", sums, pair);
    if (p_.with_documents) documents_ = make("documents", DType::int32, {p_.B, T_});
    workspace_ = make("workspace", DType::uint8,
                      {static_cast<std::int64_t>(attention_workspace_bytes(stream_, shape(), dtype, T_, max_tokens_))});
  }
  AttentionShape shape() const { return {p_.B, p_.H, p_.G, p_.D, p_.scale(), p_.mask}; }

  void load(const TensorView& local, const std::vector<double>& global, std::int64_t heads) const {
    std::vector<T> values(local.numel());
    each_element(p_, own_, heads, [&](std::size_t to, std::size_t from) { values[to] = stored_as<T>(global[from]); });
    copy(stream_, local, host_view(values.data(), local.shape));
  }
  template <class X>
  std::vector<X> read(const TensorView& x) const {
    std::vector<X> values(x.numel());
    copy(stream_, host_view(values.data(), x.shape), x);
    return values;
  }
  template <class X>
  void store(std::vector<double>& global, const TensorView& local, std::int64_t heads) const {
    const std::vector<X> values = read<X>(local);
    each_element(p_, own_, heads,
                 [&](std::size_t from, std::size_t to) { global[to] = static_cast<double>(widened(values[from])); });
  }

  void run(int layer) {
    load(q_, p_.q, p_.H);
    load(dout_, p_.dout, p_.H);
    load(kv_.view().select(0), p_.k, p_.G);
    load(kv_.view().select(1), p_.v, p_.G);
    if (p_.with_documents) {
      std::vector<std::int32_t> ids;
      for (std::int64_t b = 0; b < p_.B; ++b) {
        for (std::int64_t t = 0; t < T_; ++t) ids.push_back(p_.documents[b * p_.S + position_of(own_, t)]);
      }
      copy(stream_, documents_, host_view(ids.data(), documents_.view().shape));
    }
    const AttentionTokens own{own_, documents_.view()};
    const AttentionState state{o_, m_, l_};
    ring_->begin(p_.mask, shards_.extents, shards_.segments, p_.B);
    reset_state(stream_, state);
    ring_->forward(stream_, layer, kv_, documents_, [&](const RingBlock& block) {
      EXPECT_EQ(KeptFree::now(), ranks_.multiprocessors());
      attention_forward(stream_, shape(), q_, block.k, block.v, own, block.tokens, state, {}, workspace_);
    });
    const TensorView out = rounded_out_.empty() ? o_.view() : rounded_out_.view();
    attention_finalize(stream_, state, out, m_);
    attention_delta(stream_, l_, dout_, out);
    fill(stream_, dq_, 0.0);
    fill(stream_, dkv_, 1e30);  // nobody may add to this
    ring_->backward(stream_, layer, kv_, documents_, dkv_, [&](const RingBlock& block) {
      EXPECT_EQ(KeptFree::now(), ranks_.multiprocessors());
      add_gradients(stream_, shape(), block, {q_, dout_, m_, l_, dq_}, own, workspace_);
    });
    EXPECT_EQ(KeptFree::now(), 0) << "other kernels share the device with fewer messages";
    store<T>(result_.out, out, p_.H);
    store<A>(result_.dq, dq_, p_.H);
    store<A>(result_.dk, dkv_.view().select(0), p_.G);
    store<A>(result_.dv, dkv_.view().select(1), p_.G);
    const std::vector<A> lse = read<A>(m_);
    for (std::int64_t row = 0; row < p_.B * p_.H; ++row) {
      for (std::int64_t t = 0; t < T_; ++t) {
        result_.lse[row * p_.S + position_of(own_, t)] = static_cast<double>(lse[row * T_ + t]);
      }
    }
  }

  const Problem& p_;
  Stream& stream_;
  Allocator& allocator_;
  Communicator& ranks_;
  Result& result_;
  const Shards shards_;
  const SegmentList& own_;
  const std::int64_t T_;         // of this rank
  std::int64_t max_tokens_ = 0;  // of any rank
  Tensor q_, o_, rounded_out_, dout_, dq_, m_, l_, kv_, dkv_, documents_, workspace_;
  std::unique_ptr<Ring> ring_;  // destroyed first
};

/// Returns the attention of the whole problem and its gradients, as computed by a ring.
inline Result run_ring(const Problem& p, const RunOptions& options) {
  Result result = Result::of(p);
  std::vector<Traffic> traffic(options.N);
  run_ranks({.ranks = options.N, .timeout_seconds = 60}, [&](Communicator& world) {
    WatchedCommunicator watched(borrowed(world), traffic[world.rank()], options.jitter_seed);
    ThreadPool pool(1);
    Stream stream(pool);
    Allocator allocator(Device::cpu());
    dispatch_dtype(options.dtype,
                   [&]<class T, class A>() { RankRun<T, A>(p, options, allocator, stream, watched, result); });
  });
  result.unite_ranks();
  std::vector<std::vector<Traffic>> rows;  // one per rank
  for (const Traffic& own : traffic) rows.push_back({own});
  share_rows(rows);
  if (!options.traffic) return result;
  options.traffic->clear();
  for (const auto& row : rows) options.traffic->push_back(row[0]);
  return result;
}

}  // namespace ringtrain::testing
