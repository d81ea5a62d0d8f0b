// A program's own layer in the transformer's sequence: it follows a block and changes the residual stream in place. It
// keeps what backward needs in tensors that its constructor makes. Its parameters belong to the block's bucket, whose
// weights are available while the layer runs.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/allocator.h"
#include "framework/stream.h"
#include "layers/device_batch.h"
#include "layers/execution_shape.h"
#include "layers/model_parameters.h"
#include "layers/model_spec.h"
#include "parallel/communicator.h"
#include "parallel/parameter_store.h"

namespace ringtrain {

class InsertedLayer {
 public:
  virtual ~InsertedLayer() = default;

  /// x [B * T, C], in the model's dtype: the residual stream after the block; the call turns it into that after this
  /// layer. training: backward of this micro-batch follows and needs what this call keeps.
  virtual void forward(Stream& stream, const DeviceBatch& batch, const TensorView& x, bool training) = 0;
  /// gradient [B * T, C], in the model's dtype: of the stream after this layer; the call turns it into that of the
  /// stream before it. Adds the gradients of the layer's parameters: it must call begin_gradient for each that trains,
  /// even without tokens.
  virtual void backward(Stream& stream, const DeviceBatch& batch, const TensorView& gradient) = 0;
  /// Returns whether a token's row of the output depends only on that row of the input. If so, a model with this layer
  /// can generate: forward of the new token's row is all that generation needs.
  virtual bool works_by_token() const { return false; }
};

/// What the constructor of such a layer receives. All of it outlives the layer.
struct LayerContext {
  const ModelSpec& spec;
  const ExecutionShape& shape;  // the most tokens of a micro-batch: Activations::max_batch_tokens(shape)
  Allocator& allocator;         // makes all of its tensors; when planning, without memory
  ParameterStore& parameters;
  Stream& stream;
  Communicator* sequence_group;  // the ranks that share this rank's sequences; null when planning
  const std::vector<int>& ids;   // of its parameters, in the order of LayerInsertion::parameters
  std::int64_t block;            // the block that it follows
};

}  // namespace ringtrain
