// Attention forward (FlashAttention-2, Algorithm 1). A task is one tile of queries of one head. Vectors run along the
// queries: scores are kept transposed, S^T = K Q^T, so maxima, sums, and masks are lanewise, and the output is
// accumulated as O^T += V^T P^T. A task packs its queries once, and also each tile of keys and values: in memory, rows
// of one head can be a page apart, which is slow for the caches. S is the stored type, A that of sums, and products
// take P: A itself, or Pairs of bfloat16. With bfloat16, probabilities are rounded for their product, as on a GPU.
#include <algorithm>
#include <limits>
#include <numbers>

#include "kernels/cpu/attention_cpu.h"

namespace ringtrain::cpu {

namespace {

/// The queries of a task, in panels of panel_width<A> lanes; lanes beyond the tile's end are zero and never stored.
template <class A, class P>
struct ForwardScratch : ScratchParts {
  static constexpr std::int64_t width = panel_width<A>;
  static constexpr std::int64_t padded = max_queries_a_task;
  P* q;                            // [panels, packed D, width]
  A* o;                            // [panels, D, width]
  P* k;                            // [forward_key_tile, packed D]
  P* v;                            // [packed forward_key_tile, D]
  A* s;                            // [forward_key_tile, width], one panel's scores, then probabilities
  A *m, *l;                        // [padded]
  Integer<A>*position, *document;  // [padded], positions relative to the tile's first

  ForwardScratch(std::byte* memory, std::int64_t D) : ScratchParts(memory) {
    take(q, padded * packed_terms<P>(D));
    take(o, padded * D);
    take(k, forward_key_tile * packed_terms<P>(D));
    take(v, packed_terms<P>(forward_key_tile) * D);
    take(s, forward_key_tile * width);
    take(m, padded);
    take(l, padded);
    take(position, padded);
    take(document, padded);
  }
};

/// One task: tile `tile` of the queries of head h of sequence b. Capped: scores have a softcap.
template <class S, class A, class P, bool Capped>
class ForwardTask {
 public:
  ForwardTask(const ForwardCall<S, A>& call, std::int64_t b, std::int64_t h, const Tile& tile, std::byte* scratch)
      : call_(call), tile_(tile), scratch_(scratch, call.shape.D) {
    const auto& [B, H, G, D, scale, mask, deterministic, softcap] = call.shape;
    const std::int64_t g = h / (H / G);
    q_ = call.q + ((b * call.Tq + tile.begin) * H + h) * D;
    o_ = call.o + ((b * call.Tq + tile.begin) * H + h) * D;
    m_ = call.m + (b * H + h) * call.Tq + tile.begin;
    l_ = call.l + (b * H + h) * call.Tq + tile.begin;
    k_ = call.k + (b * call.Tk * G + g) * D;
    v_ = call.v + (b * call.Tk * G + g) * D;
    query_documents_ = call.query_documents ? call.query_documents + b * call.Tq : nullptr;
    key_documents_ = call.key_documents ? call.key_documents + b * call.Tk : nullptr;
    panels_ = (tile.count + width - 1) / width;
  }

  void run() {
    const Extent tile_extent = extent_of(tile_, {0, tile_.count}, query_documents_);
    const PositionRange positions = keys_seen_by(call_.shape.mask, {tile_extent.first, tile_extent.last});
    bool loaded = false;
    for (std::int64_t index = call_.keys.count() - 1; index >= 0; --index) {
      const Tile keys = call_.keys[index];
      if (keys.position(keys.count - 1) < positions.first) break;  // positions increase along a shard
      const LocalRange seen = clip_keys(call_.shape.mask, keys, key_documents_, tile_extent);
      if (seen.empty()) continue;
      if (!loaded) load_state();
      loaded = true;
      load_keys(keys, whole(seen));
      for (std::int64_t panel = 0; panel < panels_; ++panel) {
        const Extent queries = extent_of(tile_, {panel * width, panel * width + lanes_used(panel)}, query_documents_);
        const LocalRange run = clip_keys(call_.shape.mask, keys, key_documents_, queries);
        if (!run.empty()) add_keys(panel, queries, keys, run);
      }
    }
    if (loaded) store_state();
  }

 private:
  static constexpr std::int64_t width = panel_width<A>;
  static constexpr int W = lanes<A>;
  static constexpr A infinity = std::numeric_limits<A>::infinity();

  /// Returns keys in whole packed elements: keys that `run` does not contain are masked.
  static LocalRange whole(LocalRange run) {
    return {run.begin / terms_of<P> * terms_of<P>, packed_terms<P>(run.end) * terms_of<P>};
  }
  /// Returns the number of lanes of a panel that contain queries.
  std::int64_t lanes_used(std::int64_t panel) const { return std::min(width, tile_.count - panel * width); }

  void load_state() {
    const std::int64_t D = call_.shape.D, row = call_.shape.H * D;
    const std::int64_t depth = packed_terms<P>(D);
    for (std::int64_t panel = 0; panel < panels_; ++panel) {
      P* const q = scratch_.q + panel * width * depth;
      A* const o = scratch_.o + panel * width * D;
      if (lanes_used(panel) < width) {
        std::fill_n(q, width * depth, P{0});
        std::fill_n(o, width * D, A{0});
      }
      pack_transposed(q, width, q_ + panel * width * row, row, lanes_used(panel), D);
      transpose(o, width, o_ + panel * width * row, row, lanes_used(panel), D);
    }
    for (std::int64_t i = 0; i < panels_ * width; ++i) {
      const bool real = i < tile_.count;
      scratch_.m[i] = real ? m_[i] : -infinity;
      scratch_.l[i] = real ? l_[i] : A{0};
      scratch_.position[i] = static_cast<Integer<A>>(tile_.stride * i);
      scratch_.document[i] = real && query_documents_ ? query_documents_[tile_.begin + i] : 0;
    }
  }

  /// Packs the keys and values `run` of a tile, whole packed elements; token j of the tile goes to row j.
  void load_keys(const Tile& keys, LocalRange run) {
    const std::int64_t D = call_.shape.D, row = call_.shape.G * D, depth = packed_terms<P>(D);
    const std::int64_t count = std::min(run.end, keys.count) - run.begin;  // a last pair may have only one key
    const S *k = k_ + (keys.begin + run.begin) * row, *v = v_ + (keys.begin + run.begin) * row;
    if (count < run.end - run.begin) std::fill_n(scratch_.k + keys.count * depth, depth, P{0});
    pack_rows(scratch_.k + run.begin * depth, depth, k, row, count, D);
    pack_along_rows(scratch_.v + run.begin / terms_of<P> * D, D, v, row, count, D);
  }

  void store_state() {
    const std::int64_t D = call_.shape.D, row = call_.shape.H * D;
    for (std::int64_t panel = 0; panel < panels_; ++panel) {
      transpose(o_ + panel * width * row, row, scratch_.o + panel * width * D, width, D, lanes_used(panel));
    }
    std::copy_n(scratch_.m, tile_.count, m_);
    std::copy_n(scratch_.l, tile_.count, l_);
  }

  /// Adds the keys `run` of a tile to the queries of a panel.
  void add_keys(std::int64_t panel, const Extent& queries, const Tile& keys, LocalRange run) {
    const std::int64_t D = call_.shape.D, depth = packed_terms<P>(D);
    const LocalRange all = whole(run);
    const std::int64_t count = all.end - all.begin;
    const P* q = scratch_.q + panel * width * depth;
    A* o = scratch_.o + panel * width * D;
    gemm_panel<P, Order::rows, Store::overwrite>(count, lanes_used(panel), depth, scratch_.k + all.begin * depth, depth,
                                                 q, width, scratch_.s, width);
    if constexpr (Capped) cap_scores(count);
    if (count != run.end - run.begin || !all_visible(call_.shape.mask, queries, extent_of(keys, run, key_documents_))) {
      mask_scores(panel, keys, all);
    }
    softmax(panel, count, o);
    gemm_panel<P, Order::columns, Store::add>(D, lanes_used(panel), packed_terms<P>(count),
                                              scratch_.v + all.begin / terms_of<P> * D, D,
                                              reinterpret_cast<const P*>(scratch_.s), width, o, width);
  }

  /// Sets scores s to tanh(scale s / softcap): softmax() scales them by the softcap.
  void cap_scores(std::int64_t count) {
    const A inner = static_cast<A>(call_.shape.scale / call_.shape.softcap);
    for (A* s = scratch_.s; s < scratch_.s + count * width; s += W) store(s, tanh<A>(load(s) * inner));
  }

  /// Sets the scores of pairs that the mask or the documents forbid to -inf.
  void mask_scores(std::int64_t panel, const Tile& keys, LocalRange run) {
    for (std::int64_t j = run.begin; j < run.end; ++j) {
      A* const s = scratch_.s + (j - run.begin) * width;
      if (j == keys.count) {  // the missing key of a last pair
        std::fill_n(s, width, -infinity);
        break;
      }
      const std::int64_t key = keys.position(j);
      hide_scores(s, {0, width}, scratch_.position + panel * width, scratch_.document + panel * width,
                  queries_that_see(call_.shape.mask, {key, key}), tile_.start,
                  key_documents_ ? key_documents_ + keys.begin + j : nullptr);
    }
  }

  /// Turns `count` rows of scores into probabilities relative to the new running maximum, packed for their product, and
  /// rescales the panel's state (m, l, and the output o [D, width]) to that maximum.
  void softmax(std::int64_t panel, std::int64_t count, A* o) {
    constexpr A log2e = std::numbers::log2e_v<A>;
    constexpr int NR = panel_vectors;
    const A scale = static_cast<A>(Capped ? call_.shape.softcap : call_.shape.scale);
    A* s = scratch_.s;
    Vector<A> largest[NR], offset[NR], sum[NR], alpha[NR];
    Integers<A> moved{};
    for (int r = 0; r < NR; ++r) largest[r] = broadcast<A>(-infinity);
    for (std::int64_t j = 0; j < count; ++j) {
      unroll<NR>([&](auto r) { largest[r] = maximum(load(s + j * width + r * W), largest[r]); });
    }
    for (int r = 0; r < NR; ++r) {
      const Vector<A> before = load(scratch_.m + panel * width + r * W);
      const Vector<A> now = maximum(largest[r] * scale, before);
      store(scratch_.m + panel * width + r * W, now);
      // A row that has seen no key yet keeps m = -inf; use 0 instead, so that -inf - -inf does not occur.
      const Vector<A> anchor = now == -infinity ? Vector<A>{} : now;
      offset[r] = -(anchor * log2e);
      alpha[r] = now == before ? broadcast<A>(A{1}) : exp2<A>(before * log2e + offset[r]);
      moved |= now != before;
      sum[r] = Vector<A>{};
    }
    const Vector<A> factor = broadcast<A>(scale * log2e);
    for (std::int64_t j = 0; j < count; j += terms_of<P>) {
      unroll<NR>([&](auto r) {
        const A* const at = s + j * width + r * W;
        const Vector<A> p = exp2<A>(fma(load(at), factor, offset[r]));
        sum[r] += p;
        if constexpr (terms_of<P> == 2) {  // the pair is written before the elements that are still to be read
          const Vector<A> next = exp2<A>(fma(load(at + width), factor, offset[r]));
          sum[r] += next;
          store(reinterpret_cast<Pair*>(s + j / 2 * width + r * W), pairs_of(rounded_sums(p), rounded_sums(next)));
        } else {
          store(s + j * width + r * W, as_stored<S>(p));
        }
      });
    }
    for (int r = 0; r < NR; ++r) {
      A* l = scratch_.l + panel * width + r * W;
      store(l, fma(load(l), alpha[r], sum[r]));
    }
    if (!any(moved)) return;
    for (std::int64_t d = 0; d < call_.shape.D; ++d) {
      for (int r = 0; r < NR; ++r) store(o + d * width + r * W, load(o + d * width + r * W) * alpha[r]);
    }
  }

  const ForwardCall<S, A>& call_;
  const Tile tile_;
  ForwardScratch<A, P> scratch_;
  const S *q_, *k_, *v_;  // this head's; rows are H * D or G * D apart
  A *o_, *m_, *l_;
  const std::int32_t *query_documents_, *key_documents_;
  std::int64_t panels_;
};

}  // namespace

template <class S, class A>
std::size_t forward_scratch_bytes(std::int64_t D) {
  if constexpr (std::is_same_v<S, A>) return ForwardScratch<A, A>(nullptr, D).bytes();
  return std::max(ForwardScratch<A, A>(nullptr, D).bytes(), ForwardScratch<A, Pair>(nullptr, D).bytes());
}

template <class S, class A>
void attention_forward(ThreadPool& pool, const ForwardCall<S, A>& call, std::byte* workspace) {
  const std::int64_t tiles = call.queries.count(), heads = call.shape.B * call.shape.H;
  const std::size_t scratch = forward_scratch_bytes<S, A>(call.shape.D);
  // One head at a time, so that its keys and values are still in a cache when its next tile reads them; last tiles
  // first, because under a causal mask they are the longest.
  const auto run = [&]<class P, bool Capped>() {
    pool.run(heads * tiles, [&](std::int64_t task, int worker) {
      const std::int64_t head = task / tiles, index = tiles - 1 - task % tiles;
      ForwardTask<S, A, P, Capped>(call, head / call.shape.H, head % call.shape.H, call.queries[index],
                                   workspace + static_cast<std::size_t>(worker) * scratch)
          .run();
    });
  };
  dispatch_packed<S, A>([&]<class P>() {
    if (call.shape.softcap > 0) return run.template operator()<P, true>();
    run.template operator()<P, false>();
  });
}

template std::size_t forward_scratch_bytes<float, float>(std::int64_t);
template std::size_t forward_scratch_bytes<double, double>(std::int64_t);
template std::size_t forward_scratch_bytes<BFloat16, float>(std::int64_t);
template void attention_forward<float>(ThreadPool&, const ForwardCall<float, float>&, std::byte*);
template void attention_forward<double>(ThreadPool&, const ForwardCall<double, double>&, std::byte*);
template void attention_forward<BFloat16>(ThreadPool&, const ForwardCall<BFloat16, float>&, std::byte*);

}  // namespace ringtrain::cpu
