// The whole model in plain double: what ringtrain computes, to be read beside the papers. One sequence after another,
// one token row after another; no tiles, no ring, no layouts, no shards. It has every trait of layers/model_spec.h, and
// shares no code with the kernels, the ring, the loader or the optimizer. `check` holds runs against it, and tests hold
// it against finite differences and against PyTorch's numbers.
//
// Tensors have the names of a dump (docs/debugging.md), so a reader finds a run's numbers beside these.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "layers/model_spec.h"
#include "reference/operations.h"

namespace ringtrain::reference {

/// By name. Of tokens: [T, width].
using Tensors = std::map<std::string, Vector>;

/// One sequence. Token t's label is the token that follows it, -1: none; documents empty: all tokens are of one.
struct Row {
  std::vector<std::int32_t> tokens, labels, documents;
  std::vector<std::int32_t> positions;  // within the document: what rotary and learned positions count
  std::vector<double> weights;          // of the labels
  std::int64_t size() const { return std::ssize(tokens); }
};

class Model {
 public:
  /// weights: named and shaped as in checkpoints. rounds empty: exact but for double's own rounding.
  Model(ModelSpec spec, Tensors weights, Rounds rounds = {});
  ~Model();

  /// Fills t with every tensor of the forward pass but logits. Returns the sum of weight * nll over the row's labels.
  double forward(const Row& row, Tensors& t) const;
  /// After forward: fills t with the gradients of sum(weight * nll) / denominator with respect to these tensors
  /// ("grad." before the name), and adds those of the weights to `gradients`, by the weights' names.
  void backward(const Row& row, double denominator, Tensors& t, Tensors& gradients) const;

 private:
  struct Pass;
  std::unique_ptr<const Pass> pass_;
};

}  // namespace ringtrain::reference
