// Plain full attention in double, forward and backward by the direct formulas (Vaswani et al., "Attention is all you
// need", 2017, eq. 1; its gradients as in Dao et al., "FlashAttention", 2022, appendix B.2). It computes one query
// after another: no tiles and no running state. The mask is a literal version of the design's words: a query sees a key
// of its own document, not after it if causal, and at most window - 1 tokens away if there is a window (0: none).
#pragma once

#include <cstdint>
#include <vector>

namespace ringtrain::reference {

/// The global position of each of T tokens (the same for all sequences) and each token's document, [B, T]; empty: all
/// are the same.
struct Tokens {
  std::vector<std::int64_t> positions;
  std::vector<std::int32_t> documents;
};

struct Attention {
  std::int64_t B = 1, H = 1, G = 1, D = 1;  // query head h reads key/value head h / (H / G)
  double scale = 1;
  bool causal = true;
  std::int64_t window = 0;
  double softcap = 0;              // c above 0: a scaled score s becomes c tanh(s / c) ("Gemma 2", 2024, section 2)
  std::vector<double> sinks = {};  // [H], or empty: one more score with the keys' scores, whose weight goes to no value
};

/// q, dout, out, dq: [B, Tq, H, D]; k, v, dk, dv: [B, Tk, G, D]; lse: [B, H, Tq]. A row without keys has out 0 and lse
/// -inf, or the sink.
struct Forward {
  std::vector<double> out, lse;
};
struct Backward {
  std::vector<double> dq, dk, dv, dsinks;
};

/// Returns whether query token i sees key token j of sequence b.
bool is_visible(const Attention& attention, const Tokens& queries, const Tokens& keys, std::int64_t b, std::int64_t i,
                std::int64_t j);

Forward forward(const Attention& attention, const std::vector<double>& q, const std::vector<double>& k,
                const std::vector<double>& v, const Tokens& queries, const Tokens& keys);

/// Returns the gradients of sum(dout * out). out: from forward.
Backward backward(const Attention& attention, const std::vector<double>& q, const std::vector<double>& k,
                  const std::vector<double>& v, const std::vector<double>& out, const std::vector<double>& dout,
                  const Tokens& queries, const Tokens& keys);

}  // namespace ringtrain::reference
