// Attention backward (FlashAttention-2, Algorithm 2) with five products a pair of tiles. A task is one tile of keys of
// one key/value head; it keeps that tile's dk and dv and meets the query tiles upwards, all heads of the group for
// each. Vectors run along the keys for scores and along D for gradients. The tasks of a head add to its dq in order,
// from the last key downwards, in steps of backward_key_tile however many keys a task has: a task computes its share on
// its own and waits only before it adds. Tasks are started in that same order, so the one waited for is always running
// or done.
#include <algorithm>
#include <atomic>
#include <cstring>
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

/// P is D rounded up to whole vectors. Keys: packed once a task. Queries: packed for each pair of tiles.
template <class A>
struct BackwardScratch {
  static constexpr std::int64_t keys = max_keys_a_task, queries = backward_query_tile;
  A *k_columns, *v_columns;        // [keys / width, D, width]: K^T and V^T by panel
  A *k, *dk, *dv;                  // [keys, P]
  A *q, *dout;                     // [queries, P]
  A* dq[2];                        // [queries, P], of the upper and the lower keys
  A *p, *ds;                       // [queries, keys]
  A *lse, *delta;                  // [queries]; lse in units of log2
  Integer<A>*position, *document;  // [keys], positions relative to the tile's first

  BackwardScratch(std::byte* memory, std::int64_t D) {
    const std::int64_t P = padded_head<A>(D);
    A* next = reinterpret_cast<A*>(memory);
    const auto take = [&next](std::int64_t elements) { return std::exchange(next, next + elements); };
    k_columns = take(keys * D), v_columns = take(keys * D);
    k = take(keys * P), dk = take(keys * P), dv = take(keys * P);
    q = take(queries * P), dout = take(queries * P), dq[0] = take(queries * P), dq[1] = take(queries * P);
    p = take(queries * keys), ds = take(queries * keys);
    lse = take(queries), delta = take(queries);
    position = reinterpret_cast<Integer<A>*>(take(keys)), document = reinterpret_cast<Integer<A>*>(take(keys));
  }
  static std::size_t bytes(std::int64_t D) {
    const std::int64_t P = padded_head<A>(D);
    const auto elements = static_cast<std::size_t>(2 * keys * D + (3 * keys + 4 * queries) * P + 2 * queries * keys +
                                                   2 * queries + 2 * keys);
    return (elements * sizeof(A) + 63) / 64 * 64;
  }
};

using Counter = std::atomic_ref<std::int64_t>;

/// Capped: scores have a softcap.
template <class S, class A, bool Capped>
class BackwardTask {
 public:
  /// Tile `index` of the keys of key/value head g of sequence b; dq_counters: one counter for each key tile of this
  /// head.
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
    bool loaded = false;
    for (std::int64_t i = 0; i < tiles; ++i) {
      const Tile queries = call_.queries[i];
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
  /// Elements in a line of a cache.
  template <class E>
  static constexpr std::int64_t in_line = 64 / static_cast<std::int64_t>(sizeof(E));

  /// Returns the key tile that adds to the dq of these queries just before this one; -1: none.
  std::int64_t previous_visitor(const Tile& queries) const {
    for (std::int64_t other = index_ + 1; other < call_.keys.count(); ++other) {
      const Tile keys = call_.keys[other];
      const Extent extent = extent_of(keys, {0, keys.count}, key_documents_);
      if (!clip_queries(call_.shape.mask, queries, query_documents_, extent).empty()) return other;
    }
    return -1;
  }

  /// Returns when key tile `other` has added its share to that tile and head.
  void wait_for(std::int64_t other, std::int64_t ticket) const {
    const Counter counter(dq_counters_[other]);
    for (int spins = 0; counter.load(std::memory_order_acquire) < ticket; ++spins) {
      if (spins > 1000) std::this_thread::yield();
    }
  }

  /// Queries that are packed next: rows [H * D apart] of q, dout and dq from an offset on.
  struct Coming {
    std::int64_t offset = 0, count = 0;
  };
  std::int64_t first_row(std::int64_t h, std::int64_t token) const {
    return ((b_ * call_.Tq + token) * call_.shape.H + h) * D();
  }
  /// Asks for a share of them, between the products of this pair of tiles.
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
    const std::int64_t P = padded_head<A>(D()), row = call_.shape.G * D();
    const S *k = key_rows(call_.k), *v = key_rows(call_.v);
    for (std::int64_t first = 0; first < tile_.count; first += width) {
      const std::int64_t n = std::min(width, tile_.count - first);
      A *k_columns = scratch_.k_columns + first * D(), *v_columns = scratch_.v_columns + first * D();
      if (n < width) std::fill_n(k_columns, width * D(), A{0}), std::fill_n(v_columns, width * D(), A{0});
      transpose(k_columns, width, k + first * row, row, n, D());
      transpose(v_columns, width, v + first * row, row, n, D());
    }
    for (std::int64_t j = 0; j < max_keys_a_task; ++j) {
      scratch_.position[j] = static_cast<Integer<A>>(tile_.stride * j);
      scratch_.document[j] = j < tile_.count && key_documents_ ? key_documents_[tile_.begin + j] : 0;
    }
    pack_rows(scratch_.k, k, row, tile_.count, P);
    pack_rows(scratch_.dk, key_rows(call_.dk), row, tile_.count, P);
    pack_rows(scratch_.dv, key_rows(call_.dv), row, tile_.count, P);
  }

  void store_keys() {
    const std::int64_t P = padded_head<A>(D()), row = call_.shape.G * D();
    A *dk = key_rows(call_.dk), *dv = key_rows(call_.dv);
    for (std::int64_t j = 0; j < tile_.count; ++j) {
      std::copy_n(scratch_.dk + j * P, D(), dk + j * row);
      std::copy_n(scratch_.dv + j * P, D(), dv + j * row);
    }
  }

  /// to[rows, P] = from[rows, D] whose rows stand `stride` apart; the rest is 0.
  template <class E>
  void pack_rows(A* to, const E* from, std::int64_t stride, std::int64_t rows, std::int64_t P) const {
    for (std::int64_t i = 0; i < rows; ++i) {
      copy_widened(from + i * stride, D(), to + i * P);
      std::fill(to + i * P + D(), to + (i + 1) * P, A{0});
    }
  }

  /// Adds the queries `run` of a tile, head h, to this task's dk and dv, and leaves their dq of these keys in scratch.
  void add_queries(std::int64_t h, const Tile& queries, LocalRange run) {
    const std::int64_t P = padded_head<A>(D()), row = call_.shape.H * D(), n = run.end - run.begin;
    const std::int64_t first = b_ * call_.Tq + queries.begin + run.begin;
    const std::int64_t statistics = (b_ * call_.shape.H + h) * call_.Tq + queries.begin + run.begin;
    pack_rows(scratch_.q, call_.q + (first * call_.shape.H + h) * D(), row, n, P);
    pack_rows(scratch_.dout, call_.dout + (first * call_.shape.H + h) * D(), row, n, P);
    for (std::int64_t i = 0; i < n; ++i) {
      // A row without a key: any finite score minus this is far below what exp2 can tell from 0.
      const A lse = call_.lse[statistics + i];
      scratch_.lse[i] = lse == -infinity ? std::numeric_limits<A>::max() / 4 : lse * std::numbers::log2e_v<A>;
      scratch_.delta[i] = call_.delta[statistics + i];
    }
    // Keys that some query of the run may see, from a panel's edge on: on the diagonal and at a window's edge, not all.
    const Extent seen_from = extent_of(queries, run, query_documents_);
    const LocalRange visible = clip_keys(call_.shape.mask, tile_, key_documents_, seen_from);
    const LocalRange keys{visible.begin / width * width, std::max(visible.begin, visible.end)};
    const std::int64_t count = keys.end - keys.begin, score_row = call_.keys.size();
    share_of_dq_[0] = {std::max(keys.begin, lower_count_), keys.end};
    share_of_dq_[1] = {keys.begin, std::min(keys.end, lower_count_)};
    const std::int64_t shares = (count + width - 1) / width + (P + width - 1) / width;
    std::int64_t share = 0;
    for (std::int64_t at = keys.begin; at < keys.end; at += width) {
      prefetch_queries(share++, shares);
      const std::int64_t columns = std::min(width, keys.end - at);
      gemm_panel<A, Order::rows, Store::overwrite>(n, columns, D(), scratch_.q, P, scratch_.k_columns + at * D(), width,
                                                   scratch_.p + at, score_row);
      gemm_panel<A, Order::rows, Store::overwrite>(n, columns, D(), scratch_.dout, P, scratch_.v_columns + at * D(),
                                                   width, scratch_.ds + at, score_row);
    }
    const LocalRange used{keys.begin, (keys.end + W - 1) / W * W};
    if constexpr (Capped) cap_scores(n, used);
    if (!all_visible(call_.shape.mask, seen_from, extent_)) mask_scores(queries, run, used);
    softmax(n, used);
    for (std::int64_t at = 0; at < P; at += width) {
      prefetch_queries(share++, shares);
      const std::int64_t columns = std::min(width, P - at);
      gemm_panel<A, Order::columns, Store::add>(count, columns, n, scratch_.p + keys.begin, score_row,
                                                scratch_.dout + at, P, scratch_.dv + keys.begin * P + at, P);
      gemm_panel<A, Order::columns, Store::add>(count, columns, n, scratch_.ds + keys.begin, score_row, scratch_.q + at,
                                                P, scratch_.dk + keys.begin * P + at, P);
      for (int part = 0; part < 2; ++part) {
        const auto [from, to] = share_of_dq_[part];
        if (from >= to) continue;
        gemm_panel<A, Order::rows, Store::overwrite>(n, columns, to - from, scratch_.ds + from, score_row,
                                                     scratch_.k + from * P + at, P, scratch_.dq[part] + at, P);
      }
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
    constexpr std::int64_t bound = std::int64_t{1} << 30;
    for (std::int64_t i = run.begin; i < run.end; ++i) {
      const std::int64_t query = queries.position(i);
      const PositionRange seen = keys_seen_by(call_.shape.mask, {query, query});
      const auto from = static_cast<Integer<A>>(std::clamp(seen.first - tile_.start, -bound, bound));
      const auto to = static_cast<Integer<A>>(std::clamp(seen.last - tile_.start, -bound, bound));
      A* s = scratch_.p + (i - run.begin) * call_.keys.size();
      for (std::int64_t lane = used.begin; lane < used.end; lane += W) {
        const Integers<A> position = load_integers<A>(scratch_.position + lane);
        Integers<A> visible_lanes = (position >= from) & (position <= to);
        if (query_documents_) {
          const auto document = static_cast<Integer<A>>(query_documents_[queries.begin + i]);
          visible_lanes &= load_integers<A>(scratch_.document + lane) == document;
        }
        store(s + lane, visible_lanes ? load(s + lane) : broadcast<A>(-infinity));
      }
    }
  }

  /// p: scores to probabilities; ds: dP to the gradient of q k^T, on rows [0, n) and lanes `used`.
  void softmax(std::int64_t n, LocalRange used) {
    const A scale = static_cast<A>(call_.shape.scale);
    const A outer = Capped ? static_cast<A>(call_.shape.softcap) : scale;
    const Vector<A> factor = broadcast<A>(outer * std::numbers::log2e_v<A>);
    for (std::int64_t i = 0; i < n; ++i) {
      const Vector<A> offset = broadcast<A>(-scratch_.lse[i]), delta = broadcast<A>(scratch_.delta[i]);
      A *p = scratch_.p + i * call_.keys.size(), *ds = scratch_.ds + i * call_.keys.size();
      for (std::int64_t lane = used.begin; lane < used.end; lane += W) {
        const Vector<A> probability = exp2<A>(fma(load(p + lane), factor, offset));
        Vector<A> slope = probability * scale;
        if constexpr (Capped) {  // of tanh; that of a score that is hidden, -inf, is not asked
          const Vector<A> capped = maximum(broadcast<A>(-1), load(p + lane));
          slope *= 1 - capped * capped;
        }
        store(p + lane, probability);
        store(ds + lane, slope * (load(ds + lane) - delta));
      }
    }
  }

  void add_dq(std::int64_t h, const Tile& queries, LocalRange run) const {
    const std::int64_t P = padded_head<A>(D()), row = call_.shape.H * D();
    A* dq = call_.dq + ((b_ * call_.Tq + queries.begin + run.begin) * call_.shape.H + h) * D();
    for (int part = 0; part < 2; ++part) {
      if (share_of_dq_[part].empty()) continue;
      for (std::int64_t i = 0; i < run.end - run.begin; ++i) {
        for (std::int64_t d = 0; d < D(); ++d) dq[i * row + d] += scratch_.dq[part][i * P + d];
      }
    }
  }

  const BackwardCall<S, A>& call_;
  const std::int64_t b_, g_, index_;
  const Tile tile_;
  std::int64_t* dq_counters_;
  BackwardScratch<A> scratch_;
  const std::int32_t *query_documents_, *key_documents_;
  Extent extent_;
  std::int64_t lower_count_;   // of the tile's keys, those below its inner multiple of backward_key_tile
  LocalRange share_of_dq_[2];  // the keys of scratch's dq
  Coming coming_;
};

}  // namespace

template <class A>
std::size_t backward_scratch_bytes(std::int64_t D) {
  return BackwardScratch<A>::bytes(D);
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
  const std::size_t scratch_bytes = backward_scratch_bytes<A>(call.shape.D);
  // As many heads at a time as there are workers: what a head's tasks read stays near, and they seldom wait for each
  // other. noexcept: a task that threw would leave the ones that wait for its turn waiting for ever.
  const auto run = [&]<bool Capped>() {
    pool.run(heads * tiles, [&](std::int64_t task, int worker) noexcept {
      const std::int64_t first = task / (tiles * together) * together, members = std::min(together, heads - first);
      const std::int64_t index = tiles - 1 - (task - first * tiles) / members,
                         head = first + (task - first * tiles) % members;
      BackwardTask<S, A, Capped>(call, head / call.shape.G, head % call.shape.G, index, dq_counters + head * tiles,
                                 scratch + static_cast<std::size_t>(worker) * scratch_bytes)
          .run();
    });
  };
  if (call.shape.softcap > 0) return run.template operator()<true>();
  run.template operator()<false>();
}

template std::size_t backward_scratch_bytes<float>(std::int64_t);
template std::size_t backward_scratch_bytes<double>(std::int64_t);
template void attention_backward<float>(ThreadPool&, const BackwardCall<float, float>&, std::byte*);
template void attention_backward<double>(ThreadPool&, const BackwardCall<double, double>&, std::byte*);
template void attention_backward<BFloat16>(ThreadPool&, const BackwardCall<BFloat16, float>&, std::byte*);

}  // namespace ringtrain::cpu
