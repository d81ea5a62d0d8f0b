// A layer of one's own in the transformer's sequence: it stands behind a block and changes the residual stream in
// place. What backward needs it keeps in tensors that its constructor makes. Its parameters belong to the bucket of the
// block, whose weights are there while it runs.
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

  /// x [B * T, C], of the model's dtype: the residual stream behind the block, which becomes that behind this layer.
  /// training: backward of this micro-batch follows, and needs what is kept here.
  virtual void forward(Stream& stream, const DeviceBatch& batch, const TensorView& x, bool training) = 0;
  /// gradient [B * T, C], of the model's dtype: of the stream behind this layer, which becomes that of the stream
  /// before it. Adds the gradients of the layer's parameters: begin_gradient for each that trains, also without tokens.
  virtual void backward(Stream& stream, const DeviceBatch& batch, const TensorView& gradient) = 0;
  /// Returns whether a token's row of the output depends on that row of the input alone. Then a model with this layer
  /// generates: forward of the new token's row is all that it needs.
  virtual bool works_by_token() const { return false; }
};

/// What the constructor of such a layer gets. All of it outlives the layer.
struct LayerContext {
  const ModelSpec& spec;
  const ExecutionShape& shape;  // the most tokens of a micro-batch: Activations::max_batch_tokens(shape)
  Allocator& allocator;         // makes all of its tensors; planning: without memory
  ParameterStore& parameters;
  Stream& stream;
  Communicator* sequence_group;  // the ranks that share this rank's sequences; null when planning
  const std::vector<int>& ids;   // of its parameters, in the order of LayerInsertion::parameters
  std::int64_t block;            // behind which it stands
};

}  // namespace ringtrain
