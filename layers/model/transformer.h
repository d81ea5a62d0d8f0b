// The model: embedding, L blocks, final norm, head, and loss, built from one block that serves every architecture
// (layers/model_spec.h). Forward and backward are explicit. The constructor allocates everything that a step needs (in
// plan mode: records it), so a step allocates nothing. A layer sees the ring, never a rank.
//
// Accumulation rule: parameter gradients add (over micro-batches; the first one, or with sharded gradients each,
// overwrites); activation gradients overwrite, except the residual stream's, which adds.
#pragma once

#include <memory>
#include <vector>

#include "framework/stream.h"
#include "layers/execution_shape.h"
#include "layers/model/inserted_layer.h"
#include "layers/model/model.h"
#include "layers/model_spec.h"
#include "parallel/communicator.h"
#include "parallel/parameter_store.h"

namespace ringtrain {

/// Returns the transformer. parameters and stream must outlive it. sequence_group: the ranks that share this rank's
/// sequences; null only when planning. layers: a program's own, after its blocks; the store's table must have their
/// parameters. Its train_step communicates over the ring in every layer.
std::unique_ptr<Model> make_transformer(const ModelSpec& spec, const ExecutionShape& shape, Allocator& allocator,
                                        ParameterStore& parameters, Stream& stream, Communicator* sequence_group,
                                        const std::vector<LayerInsertion>& layers = {});

}  // namespace ringtrain
