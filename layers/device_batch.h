// A micro-batch on the model's device: copies of the host batch's tensors on the stream's device, and a rotary table of
// its positions for each set of frequencies, which all layers share.
#pragma once

#include <span>
#include <vector>

#include "data/batch.h"
#include "framework/allocator.h"
#include "framework/event.h"
#include "kernels/attention.h"
#include "kernels/rope.h"
#include "layers/execution_shape.h"
#include "layers/model_spec.h"

namespace ringtrain {

class DeviceBatch {
 public:
  /// tokens: the largest B * T of any micro-batch.
  DeviceBatch(Allocator& allocator, const ModelSpec& spec, const ExecutionShape& shape, std::int64_t tokens);

  /// Makes rotary positions use these ropes from the next load() on. ropes: as many as the spec has.
  void set_ropes(std::span<const RopeSpec> ropes);
  /// Copies batch, which must live as long as this content is used. Throws Error(internal) before it copies anything,
  /// on any device, unless every id is a row of its table. Ids reach kernels in no other way.
  void load(Stream& stream, const Batch& batch);
  /// Returns when the last batch has been copied, so that the caller may refill it.
  void wait_for_copies() const { synchronize(copied_); }

  std::int64_t B() const { return B_; }
  std::int64_t T() const { return T_; }
  std::int64_t tokens() const { return B_ * T_; }
  TensorView token_ids() const { return tokens_.view().prefix({tokens()}); }        // int32 [B * T]
  TensorView labels() const { return labels_.view().prefix({tokens()}); }           // int32 [B * T]; -1: no target
  TensorView position_ids() const { return positions_.view().prefix({tokens()}); }  // int32 [B * T]
  TensorView weights() const { return weights_.view().prefix({tokens()}); }         // [B * T], of the loss
  TensorView documents() const;                                                     // int32 [B, T]; empty: one document
  /// Returns the table [B * T, D] of one of the model's ropes.
  TensorView rope_table(int which) const { return ropes_[which].table.view().prefix({tokens(), head_dim_}); }
  /// Returns whether any of tokens [begin, end) has a label.
  bool has_target(std::int64_t begin, std::int64_t end) const;
  /// Returns the positions of this rank's tokens.
  AttentionTokens token_positions() const { return {host_->segments, documents()}; }

 private:
  struct Rope {
    RopeSpec spec;
    Tensor table;
  };
  std::int64_t head_dim_, vocab_size_;
  std::int64_t table_positions_;  // rows of the table of positions; 0: no such table
  std::vector<Rope> ropes_;
  Tensor tokens_, labels_, positions_, documents_, weights_;
  Event copied_;
  const Batch* host_ = nullptr;
  std::int64_t B_ = 0, T_ = 0;
};

}  // namespace ringtrain
