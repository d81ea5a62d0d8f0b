// All tensors of a rank that grow with its tokens, but for the batch: made once, for the largest micro-batch. The
// recompute policy is this plan and nothing else: what it keeps exists once a layer, what it does not keep exists once
// for all layers and is made again in backward by the same kernels in the same chunks, hence to the same bits.
//
// Offloaded, what is kept waits in host memory: a few layers' worth is on the device, forward sends each layer's on its
// way when the layer is done, and backward has it fetched two layers ahead of its use.
//
// Saved by policy, beside the layer's input:  none: all of BlockTensors that says so below;
// keep_attention: attention and logsumexp;  full: nothing.  Where queries and keys are normed, none keeps what the
// norms read in place of the queries, which are made again. Under every policy the norms' outputs and the feedforward's
// activation product are made again: elementwise work on what is kept.
#pragma once

#include <array>
#include <vector>

#include "framework/allocator.h"
#include "framework/copy_stream.h"
#include "layers/execution_shape.h"
#include "layers/model_spec.h"

namespace ringtrain {

/// What backward finds as forward left it.
struct Saved {
  bool attention = false;   // attention, logsumexp
  bool everything = false;  // query, key_value, after_attention, gate, up as well
};

/// What half of a block reads of the residual stream, n of the block's tokens.
struct HalfInput {
  TensorView input;            // [n, C]; a block's is kept under every policy
  TensorView normed;           // [n, C], norm of the input; shared
  TensorView statistics;       // of that norm; shared
  std::int64_t first_row = 0;  // the first of the tokens
};

/// One block's view of the plan for a micro-batch of B x T, n = B * T tokens. Memory is given a second life in
/// backward, each time after the last use of the first: see RingAttention::backward. Statistics, logsumexp, row sum and
/// what is named a sum have the accumulator of the model's dtype (framework/dtype.h).
struct BlockTensors : HalfInput {
  TensorView output;           // [n, C], the next layer's input
  TensorView query;            // [n, H * D], after rope; kept by none, but shared where it is normed
  TensorView key_value;        // [2, B, T, G, D], keys after rope; kept by none
  TensorView attention;        // [n, H * D], O; kept by none and keep_attention. Later: its gradient's share dq
  TensorView attention_sum;    // [n, H * D], the accumulator of what `attention` holds, and its memory if of one dtype
  TensorView logsumexp;        // [B, H, T]; kept like attention
  TensorView row_sum;          // [B, H, T]; shared. Forward: the running sum l
  TensorView delta;            // [B, H, T]; backward, in row_sum's memory
  TensorView after_attention;  // [n, C], the residual stream between the halves; kept by none. Later: d normed
  TensorView gate, up;         // [n, F]; kept by none, else empty (the feedforward has chunk-sized ones)
  TensorView query_projection, key_projection;  // [n, H * D], [n, G * D], before their norms, or empty; kept by none
  TensorView query_statistics, key_statistics;  // [n * H], [n * G], of those norms, or empty; shared
  TensorView residual_gradient;                 // [n, C]; shared
  TensorView attention_gradient;                // [n, H * D], dO; shared
  TensorView key_value_gradient;                // [2, B, T, G, D]; shared
  TensorView key_value_gradient_sum;  // [2, B, T, G, D], its accumulator, and its memory if of one dtype; shared
};

class Activations {
 public:
  /// layers: as many of the model's last as backward goes through (at least one); layer 0 here is the first of them.
  /// trains: else nothing of backward, and one layer's tensors serve all.
  Activations(Allocator& allocator, const ModelSpec& spec, const ExecutionShape& shape, std::int64_t layers,
              bool trains);

  /// Returns the most tokens B * T of a micro-batch of any use.
  static std::int64_t max_batch_tokens(const ExecutionShape& shape);

  /// Returns a layer's tensors. In evaluation (not training), and below the layers that backward goes through, all work
  /// in those of layer 0, and a layer's output takes the place of its input.
  BlockTensors block(std::int64_t layer, std::int64_t B, std::int64_t T, bool training) const;
  /// Returns what backward finds as forward left it.
  const Saved& saved() const { return saved_; }

  // The way to the host and back, around a layer's forward and backward in training; nothing where nothing is
  // offloaded.
  /// The layer's tensors may be written once this was called.
  void before_forward(Stream& stream, std::int64_t layer);
  /// The layer is done with its tensors until backward.
  void after_forward(std::int64_t layer);
  /// The layer's tensors may be read once this was called. Layers come in descending order.
  void before_backward(std::int64_t layer);

 private:
  /// Layers whose tensors are on the device when they are offloaded: one computes, one comes, one goes.
  static constexpr std::int64_t resident_layers = 3;
  bool offloads(std::int64_t layer) const { return offload_ && layer + resident_layers < layers_; }

  /// One tensor a layer, or one that all share.
  class PerLayer {
   public:
    void make(Allocator& allocator, const char* name, DType dtype, const Shape& training, const Shape& largest,
              std::int64_t layers, bool keep, bool offload);
    TensorView of(std::int64_t layer, const Shape& shape) const;
    bool offloaded() const { return !host_copies_.empty(); }
    /// The whole of a layer's tensor, on the device and on the host.
    TensorView resident(std::int64_t layer) const;
    TensorView host_copy(std::int64_t layer) const { return host_copies_[layer]; }

   private:
    std::vector<Tensor> tensors_;      // of layer i: i modulo their number
    std::vector<Tensor> host_copies_;  // on the host, of the layers that are offloaded
  };
  std::array<const PerLayer*, 10> all_saved() const {
    return {&input_,          &query_, &key_value_, &attention_, &logsumexp_, &after_attention_, &query_projection_,
            &key_projection_, &gate_,  &up_};
  }

  std::int64_t layers_, C_, F_, H_, G_, D_, norm_statistics_;
  Saved saved_;
  bool trains_, gated_, query_key_norm_, offload_;
  PerLayer input_, query_, key_value_, attention_, logsumexp_, after_attention_, gate_, up_;
  PerLayer query_projection_, key_projection_;
  Tensor normed_, statistics_, row_sum_and_delta_, query_statistics_, key_statistics_;
  Tensor residual_gradient_, attention_gradient_, key_value_gradient_sum_;
  CopyStream copies_;
  std::vector<CopyStream::Event> sent_, fetched_;  // by layer
  Tensor attention_sum_;                           // empty where sums have the model's dtype
};

}  // namespace ringtrain
