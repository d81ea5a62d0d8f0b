// Attention backward (FlashAttention-2, Algorithm 2) with five products per pair of tiles. A task is one tile of keys
// of one key/value head; it keeps that tile's dk and dv and goes through the query tiles upwards, with all heads of the
// group for each. Vectors run along the keys for scores and along D for gradients. The tasks of a head add to its dq in
// order, from the last key downwards, in steps of backward_key_tile, however many keys a task has. A task computes its
// share independently and waits only before it adds. Tasks are started in the same order, so the task that another one
// waits for is always running or done. S is the stored type, A that of sums, and products take P: A itself, or Pairs of
// bfloat16. With bfloat16, P and dS are rounded for their products, as on a GPU.
#include <algorithm>
#include <atomic>
#include <limits>
#include <numbers>
#include <thread>

#include "kernels/cpu/attention_cpu.h"

namespace ringtrain::cpu {

namespace {

template <class A>
std::int64_t padded_head(std::int64_t D) {
  return (D + lanes<A> - 1) / lanes<A> * lanes<A>;
}

/// R is D rounded up to whole vectors. Keys are packed once per task, queries for each pair of tiles. If P is not a
/// Pair, packing along rows and along columns is the same, so queries and dS are stored only once.
template <class A, class P>
struct BackwardScratch : ScratchParts {
  static constexpr bool paired = terms_of<P> == 2;
  static constexpr std::int64_t keys = max_keys_a_task, queries = backward_query_tile;
  P *k_columns, *v_columns;        // [keys / width, packed D, width]: K^T and V^T by panel
  P* k;                            // [packed keys, R]
  A *dk, *dv;                      // [keys, R]
  P *q, *dout;                     // [queries, packed R]
  P *q_terms, *dout_terms;         // [packed queries, R]
  A* dq[2];                        // [queries, R], of the upper and the lower keys
  A *p, *ds;                       // [queries, keys]; then packed along the queries
  P* ds_rows;                      // [queries, packed keys]: dS, packed along the keys
  A *lse, *delta;                  // [queries]; lse in units of log2
  Integer<A>*position, *document;  // [keys], positions relative to the tile's first

  BackwardScratch(std::byte* memory, std::int64_t D) : ScratchParts(memory) {
    const std::int64_t R = padded_head<A>(D);
    take(k_columns, keys * packed_terms<P>(D));
    take(v_columns, keys * packed_terms<P>(D));
    take(k, packed_terms<P>(keys) * R);
    take(dk, keys * R);
    take(dv, keys * R);
    take(q, queries * packed_terms<P>(R));
    take(dout, queries * packed_terms<P>(R));
    take(dq[0], queries * R);
    take(dq[1], queries * R);
    take(p, queries * keys);
    take(ds, queries * keys);
    if constexpr (paired) {
      take(q_terms, packed_terms<P>(queries) * R);
      take(dout_terms, packed_terms<P>(queries) * R);
      take(ds_rows, queries * packed_terms<P>(keys));
    } else {
      q_terms = q;
      dout_terms = dout;
      ds_rows = ds;
    }
    take(lse, queries);
    take(delta, queries);
    take(position, keys);
    take(document, keys);
  }
};

using Counter = std::atomic_ref<std::int64_t>;

/// Capped: scores have a softcap.
template <class S, class A, class P, bool Capped>
class BackwardTask {
 public:
  /// Processes tile `index` of the keys of key/value head g of sequence b; dq_counters: one counter for each key tile
  /// of this head.
  BackwardTask(const BackwardCall<S, A>& call, std::int64_t b, std::int64_t g, std::int64_t index,
               std::int64_t* dq_counters, std::byte* scratch)
      : call_(call),
        b_(b),
        g_(g),
        index_(index),
        tile_(call.keys[index]),
        dq_counters_(dq_counters),
        scratch_(scratch, call.shape.D) {
    query_documents_ = call.query_documents ? call.query_documents + b * call.Tq : nullptr;
    key_documents_ = call.key_documents ? call.key_documents + b * call.Tk : nullptr;
    extent_ = extent_of(tile_, {0, tile_.count}, key_documents_);
    const std::int64_t cell = backward_key_tile * tile_.stride, upper = (tile_.start / cell + 1) * cell;
    lower_count_ = std::min(tile_.count, (upper - tile_.start + tile_.stride - 1) / tile_.stride);
  }

  void run() {
    const std::int64_t group = call_.shape.H / call_.shape.G, tiles = call_.queries.count();
    const PositionRange seen_by = queries_that_see(call_.shape.mask, {extent_.first, extent_.last});
    bool loaded = false;
    for (std::int64_t i = 0; i < tiles; ++i) {
      const Tile queries = call_.queries[i];
      if (queries.start > seen_by.last) break;  // later tiles are even further away: positions increase along a shard
      const LocalRange run = clip_queries(call_.shape.mask, queries, query_documents_, extent_);
      if (run.empty()) continue;
      if (!loaded) load_keys();
      loaded = true;
      const std::int64_t before = previous_visitor(queries);
      for (std::int64_t member = 0; member < group; ++member) {
        const std::int64_t ticket = i * group + member + 1;
        const bool same_tile = member + 1 < group;
        coming_ = {};
        if (same_tile || i + 1 < tiles) {
          const Tile next = same_tile ? queries : call_.queries[i + 1];
          coming_ = {first_row(g_ * group + (same_tile ? member + 1 : 0), next.begin), next.count};
        }
        add_queries(g_ * group + member, queries, run);
        if (before >= 0) wait_for(before, ticket);
        add_dq(g_ * group + member, queries, run);
        Counter(dq_counters_[index_]).store(ticket, std::memory_order_release);
      }
    }
    if (loaded) store_keys();
  }

 private:
  static constexpr std::int64_t width = panel_width<A>;
  static constexpr int W = lanes<A>;
  static constexpr A infinity = std::numeric_limits<A>::infinity();
  /// Elements per cache line.
  template <class E>
  static constexpr std::int64_t in_line = 64 / static_cast<std::int64_t>(sizeof(E));

  /// Returns the key tile that adds to the dq of these queries just before this one; -1 if there is none.
  std::int64_t previous_visitor(const Tile& queries) const {
    const PositionRange seen = keys_seen_by(call_.shape.mask, {queries.start, queries.position(queries.count - 1)});
    for (std::int64_t other = index_ + 1; other < call_.keys.count(); ++other) {
      const Tile keys = call_.keys[other];
      if (keys.start > seen.last) break;
      const Extent extent = extent_of(keys, {0, keys.count}, key_documents_);
      if (!clip_queries(call_.shape.mask, queries, query_documents_, extent).empty()) return other;
    }
    return -1;
  }

  /// Waits until key tile `other` has added its share to that tile and head.
  void wait_for(std::int64_t other, std::int64_t ticket) const {
    const Counter counter(dq_counters_[other]);
    for (int spins = 0; counter.load(std::memory_order_acquire) < ticket; ++spins) {
      if (spins > 1000) std::this_thread::yield();
    }
  }

  /// Queries that are packed next: rows of q, dout, and dq, H * D apart, from an offset.
  struct Coming {
    std::int64_t offset = 0, count = 0;
  };
  std::int64_t first_row(std::int64_t h, std::int64_t token) const {
    return ((b_ * call_.Tq + token) * call_.shape.H + h) * D();
  }
  /// Prefetches a share of them, between the products of this pair of tiles.
  void prefetch_queries(std::int64_t share, std::int64_t shares) const {
    const std::int64_t row = call_.shape.H * D();
    for (std::int64_t i = share * coming_.count / shares; i < (share + 1) * coming_.count / shares; ++i) {
      const std::int64_t begin = coming_.offset + i * row, end = begin + D();
      for (std::int64_t at = begin; at < end; at += in_line<S>) {
        __builtin_prefetch(call_.q + at, 0, 2);
        __builtin_prefetch(call_.dout + at, 0, 2);
      }
      for (std::int64_t at = begin; at < end; at += in_line<A>) __builtin_prefetch(call_.dq + at, 1, 2);
    }
  }

  template <class E>
  E* key_rows(E* base) const {
    return base + ((b_ * call_.Tk + tile_.begin) * call_.shape.G + g_) * D();
  }
  std::int64_t D() const { return call_.shape.D; }

  void load_keys() {
    const std::int64_t R = padded_head<A>(D()), row = call_.shape.G * D(), depth = packed_terms<P>(D());
    const S *k = key_rows(call_.k), *v = key_rows(call_.v);
    for (std::int64_t first = 0; first < tile_.count; first += width) {
      const std::int64_t n = std::min(width, tile_.count - first);
      P *k_columns = scratch_.k_columns + first * depth, *v_columns = scratch_.v_columns + first * depth;
      if (n < width) std::fill_n(k_columns, width * depth, P{0}), std::fill_n(v_columns, width * depth, P{0});
      pack_transposed(k_columns, width, k + first * row, row, n, D());
      pack_transposed(v_columns, width, v + first * row, row, n, D());
    }
    for (std::int64_t j = 0; j < max_keys_a_task; ++j) {
      scratch_.position[j] = static_cast<Integer<A>>(tile_.stride * j);
      scratch_.document[j] = j < tile_.count && key_documents_ ? key_documents_[tile_.begin + j] : 0;
    }
    pack_along_rows(scratch_.k, R, k, row, tile_.count, D());
    pack_rows(scratch_.dk, R, key_rows(call_.dk), row, tile_.count, D());
    pack_rows(scratch_.dv, R, key_rows(call_.dv), row, tile_.count, D());
  }

  void store_keys() {
    const std::int64_t R = padded_head<A>(D()), row = call_.shape.G * D();
    A *dk = key_rows(call_.dk), *dv = key_rows(call_.dv);
    for (std::int64_t j = 0; j < tile_.count; ++j) {
      std::copy_n(scratch_.dk + j * R, D(), dk + j * row);
      std::copy_n(scratch_.dv + j * R, D(), dv + j * row);
    }
  }

  /// Adds the queries `run` of a tile, head h, to this task's dk and dv, and stores their dq from these keys in
  /// scratch.
  void add_queries(std::int64_t h, const Tile& queries, LocalRange run) {
    const std::int64_t R = padded_head<A>(D()), row = call_.shape.H * D(), n = run.end - run.begin;
    const std::int64_t first = b_ * call_.Tq + queries.begin + run.begin;
    const std::int64_t statistics = (b_ * call_.shape.H + h) * call_.Tq + queries.begin + run.begin;
    const std::int64_t query_row = packed_terms<P>(R);
    pack_queries(scratch_.q, scratch_.q_terms, call_.q + (first * call_.shape.H + h) * D(), row, n);
    pack_queries(scratch_.dout, scratch_.dout_terms, call_.dout + (first * call_.shape.H + h) * D(), row, n);
    for (std::int64_t i = 0; i < n; ++i) {
      // A row without a key: any finite score minus this is so low that its exp2 is 0.
      const A lse = call_.lse[statistics + i];
      scratch_.lse[i] = lse == -infinity ? std::numeric_limits<A>::max() / 4 : lse * std::numbers::log2e_v<A>;
      scratch_.delta[i] = call_.delta[statistics + i];
    }
    // Keys that some query of the run may see, starting at a panel's edge: not all of them on the diagonal and at a
    // window's edge.
    const Extent seen_from = extent_of(queries, run, query_documents_);
    const LocalRange visible = clip_keys(call_.shape.mask, tile_, key_documents_, seen_from);
    const LocalRange keys{visible.begin / width * width, std::max(visible.begin, visible.end)};
    const std::int64_t count = keys.end - keys.begin, score_row = call_.keys.size(), depth = packed_terms<P>(D());
    share_of_dq_[0] = {std::max(keys.begin, lower_count_), keys.end};
    share_of_dq_[1] = {keys.begin, std::min(keys.end, lower_count_)};
    const std::int64_t shares = (count + width - 1) / width + (R + width - 1) / width;
    std::int64_t share = 0;
    for (std::int64_t at = keys.begin; at < keys.end; at += width) {
      prefetch_queries(share++, shares);
      const std::int64_t columns = std::min(width, keys.end - at);
      gemm_panel<P, Order::rows, Store::overwrite>(n, columns, depth, scratch_.q, query_row,
                                                   scratch_.k_columns + at * depth, width, scratch_.p + at, score_row);
      gemm_panel<P, Order::rows, Store::overwrite>(n, columns, depth, scratch_.dout, query_row,
                                                   scratch_.v_columns + at * depth, width, scratch_.ds + at, score_row);
    }
    const LocalRange used{keys.begin, (keys.end + W - 1) / W * W};
    if constexpr (Capped) cap_scores(n, used);
    if (!all_visible(call_.shape.mask, seen_from, extent_)) mask_scores(queries, run, used);
    softmax(n, used);
    const P *p = reinterpret_cast<const P*>(scratch_.p) + keys.begin,
            *ds = reinterpret_cast<const P*>(scratch_.ds) + keys.begin;
    for (std::int64_t at = 0; at < R; at += width) {
      prefetch_queries(share++, shares);
      const std::int64_t columns = std::min(width, R - at);
      gemm_panel<P, Order::columns, Store::add>(count, columns, packed_terms<P>(n), p, score_row,
                                                scratch_.dout_terms + at, R, scratch_.dv + keys.begin * R + at, R);
      gemm_panel<P, Order::columns, Store::add>(count, columns, packed_terms<P>(n), ds, score_row,
                                                scratch_.q_terms + at, R, scratch_.dk + keys.begin * R + at, R);
    }
    for (int part = 0; part < 2; ++part) multiply_dq(part, n);
  }

  /// Packs n rows of queries or of their gradients, for products over D and over the rows.
  void pack_queries(P* to, P* to_terms, const S* from, std::int64_t row, std::int64_t n) const {
    const std::int64_t R = padded_head<A>(D());
    pack_rows(to, packed_terms<P>(R), from, row, n, D());
    if constexpr (terms_of<P> == 2) pack_along_rows(to_terms, R, from, row, n, D());
  }

  /// dq[part] = dS K over that part's keys.
  void multiply_dq(int part, std::int64_t n) const {
    const std::int64_t R = padded_head<A>(D()), row = packed_terms<P>(call_.keys.size());
    const auto [from, to] = share_of_dq_[part];
    if (from >= to) return;
    const std::int64_t first = from / terms_of<P>, end = packed_terms<P>(to);
    // A pair at an edge may contain a key of the other part, or none. The upper part is processed first and restores
    // it.
    std::uint32_t kept[backward_query_tile];
    const bool shared = from % terms_of<P> != 0;
    if constexpr (terms_of<P> == 2) {
      for (std::int64_t i = 0; i < n && to % 2 != 0; ++i) scratch_.ds_rows[i * row + end - 1].bits &= 0xffff0000U;
      for (std::int64_t i = 0; i < n && shared; ++i) {
        Pair& edge = scratch_.ds_rows[i * row + first];
        kept[i] = edge.bits;
        edge.bits &= 0xffffU;
      }
    }
    for (std::int64_t at = 0; at < R; at += width) {
      gemm_panel<P, Order::rows, Store::overwrite>(n, std::min(width, R - at), end - first, scratch_.ds_rows + first,
                                                   row, scratch_.k + first * R + at, R, scratch_.dq[part] + at, R);
    }
    if constexpr (terms_of<P> == 2) {
      for (std::int64_t i = 0; i < n && shared; ++i) scratch_.ds_rows[i * row + first].bits = kept[i];
    }
  }

  /// Sets scores s to tanh(scale s / softcap), on rows [0, n) and lanes `used`.
  void cap_scores(std::int64_t n, LocalRange used) {
    const A inner = static_cast<A>(call_.shape.scale / call_.shape.softcap);
    for (std::int64_t i = 0; i < n; ++i) {
      A* p = scratch_.p + i * call_.keys.size();
      for (std::int64_t lane = used.begin; lane < used.end; lane += W) store(p + lane, tanh<A>(load(p + lane) * inner));
    }
  }

  /// Sets the scores of pairs that the mask or the documents forbid to -inf, on lanes `used`.
  void mask_scores(const Tile& queries, LocalRange run, LocalRange used) {
    for (std::int64_t i = run.begin; i < run.end; ++i) {
      const std::int64_t query = queries.position(i);
      hide_scores(scratch_.p + (i - run.begin) * call_.keys.size(), used, scratch_.position, scratch_.document,
                  keys_seen_by(call_.shape.mask, {query, query}), tile_.start,
                  query_documents_ ? query_documents_ + queries.begin + i : nullptr);
    }
  }

  /// Turns p from scores into probabilities, and ds from dP into the gradient of q k^T, on rows [0, n) and lanes
  /// `used`; packs both for their products.
  void softmax(std::int64_t n, LocalRange used) {
    const std::int64_t row = call_.keys.size();
    for (std::int64_t i = 0; i < n; i += terms_of<P>) {
      A *p = scratch_.p + i * row, *ds = scratch_.ds + i * row;
      if constexpr (terms_of<P> == 2) {  // the pair is written before the elements that are still to be read
        auto *p_pairs = reinterpret_cast<Pair*>(scratch_.p + i / 2 * row),
             *ds_pairs = reinterpret_cast<Pair*>(scratch_.ds + i / 2 * row), *ds_row = scratch_.ds_rows + i * row / 2;
        const bool both = i + 1 < n;
        for (std::int64_t lane = used.begin; lane < used.end; lane += W) {
          const Slope even = slope(i, load(p + lane), load(ds + lane));
          const Slope odd = both ? slope(i + 1, load(p + row + lane), load(ds + row + lane)) : Slope{};
          const Halves first = rounded_sums(even.ds), second = rounded_sums(odd.ds);
          store(p_pairs + lane, pairs_of(rounded_sums(even.p), rounded_sums(odd.p)));
          store(ds_pairs + lane, pairs_of(first, second));
          store_pairs(ds_row + lane / 2, first);
          if (both) store_pairs(ds_row + row / 2 + lane / 2, second);
        }
      } else {
        for (std::int64_t lane = used.begin; lane < used.end; lane += W) {
          const Slope result = slope(i, load(p + lane), load(ds + lane));
          store(p + lane, as_stored<S>(result.p));
          store(ds + lane, as_stored<S>(result.ds));
        }
      }
    }
  }

  struct Slope {
    Vector<A> p, ds;
  };
  /// Returns the probabilities of query i and the gradient of q k^T, of its scores and dP.
  [[gnu::always_inline]] Slope slope(std::int64_t i, Vector<A> score, Vector<A> dp) const {
    const A scale = static_cast<A>(call_.shape.scale);
    const A outer = Capped ? static_cast<A>(call_.shape.softcap) : scale;
    const Vector<A> factor = broadcast<A>(outer * std::numbers::log2e_v<A>);
    const Vector<A> p = exp2<A>(fma(score, factor, broadcast<A>(-scratch_.lse[i])));
    Vector<A> slope = p * scale;
    if constexpr (Capped) {  // of tanh; not used for a hidden score, -inf
      const Vector<A> capped = maximum(broadcast<A>(-1), score);
      slope *= 1 - capped * capped;
    }
    return {p, slope * (dp - broadcast<A>(scratch_.delta[i]))};
  }

  void add_dq(std::int64_t h, const Tile& queries, LocalRange run) const {
    const std::int64_t R = padded_head<A>(D()), row = call_.shape.H * D();
    A* dq = call_.dq + ((b_ * call_.Tq + queries.begin + run.begin) * call_.shape.H + h) * D();
    for (int part = 0; part < 2; ++part) {
      if (share_of_dq_[part].empty()) continue;
      for (std::int64_t i = 0; i < run.end - run.begin; ++i) {
        for (std::int64_t d = 0; d < D(); ++d) dq[i * row + d] += scratch_.dq[part][i * R + d];
      }
    }
  }

  const BackwardCall<S, A>& call_;
  const std::int64_t b_, g_, index_;
  const Tile tile_;
  std::int64_t* dq_counters_;
  BackwardScratch<A, P> scratch_;
  const std::int32_t *query_documents_, *key_documents_;
  Extent extent_;
  std::int64_t lower_count_;   // number of the tile's keys below its inner multiple of backward_key_tile
  LocalRange share_of_dq_[2];  // the keys of scratch's dq
  Coming coming_;
};

}  // namespace

template <class S, class A>
std::size_t backward_scratch_bytes(std::int64_t D) {
  if constexpr (std::is_same_v<S, A>) return BackwardScratch<A, A>(nullptr, D).bytes();
  return std::max(BackwardScratch<A, A>(nullptr, D).bytes(), BackwardScratch<A, Pair>(nullptr, D).bytes());
}

std::size_t backward_counter_bytes(const AttentionShape& shape, std::int64_t Tk) {
  const std::int64_t counters = shape.B * shape.G * TileList::bound(Tk, backward_key_tile);
  return (static_cast<std::size_t>(counters) * sizeof(std::int64_t) + 63) / 64 * 64;
}

template <class S, class A>
void attention_backward(ThreadPool& pool, const BackwardCall<S, A>& call, std::byte* workspace) {
  const std::int64_t tiles = call.keys.count(), heads = call.shape.B * call.shape.G;
  auto* dq_counters = reinterpret_cast<std::int64_t*>(workspace);
  std::fill_n(dq_counters, heads * tiles, std::int64_t{0});
  std::byte* scratch = workspace + backward_counter_bytes(call.shape, call.Tk);
  const std::int64_t together = std::min<std::int64_t>(heads, pool.workers());
  const std::size_t scratch_bytes = backward_scratch_bytes<S, A>(call.shape.D);
  // Processes as many heads at a time as there are workers: the data of a head's tasks stays in the caches, and they
  // seldom wait for each other. noexcept: if a task threw, the tasks that wait for it would wait forever.
  const auto run = [&]<class P, bool Capped>() {
    pool.run(heads * tiles, [&](std::int64_t task, int worker) noexcept {
      const std::int64_t first = task / (tiles * together) * together, members = std::min(together, heads - first);
      const std::int64_t index = tiles - 1 - (task - first * tiles) / members,
                         head = first + (task - first * tiles) % members;
      BackwardTask<S, A, P, Capped>(call, head / call.shape.G, head % call.shape.G, index, dq_counters + head * tiles,
                                    scratch + static_cast<std::size_t>(worker) * scratch_bytes)
          .run();
    });
  };
  dispatch_packed<S, A>([&]<class P>() {
    if (call.shape.softcap > 0) return run.template operator()<P, true>();
    run.template operator()<P, false>();
  });
}

template std::size_t backward_scratch_bytes<float, float>(std::int64_t);
template std::size_t backward_scratch_bytes<double, double>(std::int64_t);
template std::size_t backward_scratch_bytes<BFloat16, float>(std::int64_t);
template void attention_backward<float>(ThreadPool&, const BackwardCall<float, float>&, std::byte*);
template void attention_backward<double>(ThreadPool&, const BackwardCall<double, double>&, std::byte*);
template void attention_backward<BFloat16>(ThreadPool&, const BackwardCall<BFloat16, float>&, std::byte*);

}  // namespace ringtrain::cpu
