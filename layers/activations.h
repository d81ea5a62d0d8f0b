// All tensors of a rank that grow with its tokens, except the batch: allocated once, for the largest micro-batch. The
// recompute policy is exactly this plan: what it keeps exists once per layer; what it does not keep exists once for all
// layers, and backward recomputes it with the same kernels in the same chunks, and so to the same bits.
//
// With offloading, the kept tensors wait in host memory. The device holds a few layers' worth; forward starts to send
// each layer's when the layer is done, and backward fetches them two layers ahead of their use.
//
// What each policy saves, in addition to the layer's input:  none: every tensor of BlockTensors below that says so;
// keep_attention: attention and logsumexp;  full: nothing.  If queries and keys are normalized, `none` keeps what the
// norms read instead of the queries, which are recomputed. Under every policy, backward recomputes the norms' outputs,
// and the pass that computes the gradients of gate and up also computes the activation product again.
#pragma once

#include <array>
#include <vector>

#include "framework/allocator.h"
#include "framework/copy_stream.h"
#include "layers/execution_shape.h"
#include "layers/model_spec.h"

namespace ringtrain {

/// Which of forward's tensors are still there in backward.
struct Saved {
  bool attention = false;   // attention, logsumexp
  bool everything = false;  // also query, key_value, after_attention, gate, up
};

/// The residual stream that half of a block reads, for n of the block's tokens.
struct HalfInput {
  TensorView input;            // [n, C]; a block's is kept under every policy
  TensorView normed;           // [n, C], norm of the input; shared
  TensorView statistics;       // of that norm; shared
  std::int64_t first_row = 0;  // index of the first of the tokens
};

/// One block's view of the plan for a micro-batch of B x T, n = B * T tokens. Backward reuses memory, each time after
/// the last use of the previous contents: see RingAttention::backward. Statistics, logsumexp, row sum, and every tensor
/// named a sum have the accumulator dtype of the model's dtype (framework/dtype.h).
struct BlockTensors : HalfInput {
  TensorView output;           // [n, C], the next layer's input
  TensorView query;            // [n, H * D], after rope; kept by none, but shared if it is normalized
  TensorView key_value;        // [2, B, T, G, D], keys after rope; kept by none
  TensorView attention;        // [n, H * D], O; kept by none and keep_attention. Later: its gradient's share dq
  TensorView attention_sum;    // [n, H * D], `attention` in the accumulator dtype; same memory if dtypes are equal
  TensorView logsumexp;        // [B, H, T]; kept like attention
  TensorView row_sum;          // [B, H, T]; shared. Forward: the running sum l
  TensorView delta;            // [B, H, T]; backward only, in row_sum's memory
  TensorView after_attention;  // [n, C], the residual stream between the halves; kept by none. Later: d normed
  TensorView gate, up;         // [n, F]; kept by none, otherwise empty (the feedforward has chunk-sized ones)
  TensorView query_projection, key_projection;  // [n, H * D], [n, G * D], before their norms, or empty; kept by none
  TensorView query_statistics, key_statistics;  // [n * H], [n * G], of those norms, or empty; shared
  TensorView residual_gradient;                 // [n, C]; shared
  TensorView attention_gradient;                // [n, H * D], dO; shared
  TensorView key_value_gradient;                // [2, B, T, G, D]; shared
  TensorView key_value_gradient_sum;  // [2, B, T, G, D], the accumulator; same memory if the dtypes are equal; shared
};

class Activations {
 public:
  /// layers: how many of the model's last layers backward visits (at least one); layer 0 here is the first of them.
  /// trains: if false, no backward tensors are made, and all layers share one layer's tensors.
  Activations(Allocator& allocator, const ModelSpec& spec, const ExecutionShape& shape, std::int64_t layers,
              bool trains);

  /// Returns the largest number of tokens B * T of any micro-batch.
  static std::int64_t max_batch_tokens(const ExecutionShape& shape);

  /// Returns a layer's tensors. In evaluation (not training), and below the layers that backward visits, all layers use
  /// layer 0's tensors, and a layer's output overwrites its input.
  BlockTensors block(std::int64_t layer, std::int64_t B, std::int64_t T, bool training) const;
  /// Returns which of forward's tensors are still there in backward.
  const Saved& saved() const { return saved_; }

  // Copies to the host and back, around a layer's forward and backward in training. They do nothing if nothing is
  // offloaded.
  /// After this call, the layer's tensors may be written.
  void before_forward(Stream& stream, std::int64_t layer);
  /// Says that the layer does not need its tensors until backward.
  void after_forward(std::int64_t layer);
  /// After this call, the layer's tensors may be read. Layers come in descending order.
  void before_backward(std::int64_t layer);

 private:
  /// Layers whose tensors are on the device with offloading: one computes, one arrives, and one leaves.
  static constexpr std::int64_t resident_layers = 3;
  bool offloads(std::int64_t layer) const { return offload_ && layer + resident_layers < layers_; }

  /// One tensor per layer, or one that all layers share.
  class PerLayer {
   public:
    void make(Allocator& allocator, const char* name, DType dtype, const Shape& training, const Shape& largest,
              std::int64_t layers, bool keep, bool offload);
    TensorView view_of(std::int64_t layer, const Shape& shape) const;
    bool offloaded() const { return !host_copies_.empty(); }
    /// Returns a layer's whole tensor on the device.
    TensorView resident(std::int64_t layer) const;
    TensorView host_copy(std::int64_t layer) const { return host_copies_[layer]; }

   private:
    std::vector<Tensor> tensors_;      // layer i has tensor i modulo their number
    std::vector<Tensor> host_copies_;  // host memory of the layers that are offloaded
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
  Tensor attention_sum_;                           // empty if sums have the model's dtype
};

}  // namespace ringtrain
