// The whole model in plain double: what ringtrain computes, in a form to read along with the papers. It computes one
// sequence after another and one token row after another; no tiles, no ring, no layouts, no shards. It has every trait
// of layers/model_spec.h, and shares no code with the kernels, the ring, the loader, or the optimizer. `check` compares
// runs with it, and tests compare it with finite differences and with PyTorch's numbers.
//
// Tensors have the names of a dump (docs/debugging.md), so a reader can compare a run's numbers with these.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "layers/model_spec.h"
#include "reference/operations.h"

namespace ringtrain::reference {

/// By name. Tensors of tokens are [T, width].
using Tensors = std::map<std::string, Vector>;

/// One sequence. Token t's label is the next token, -1: none; documents empty: all tokens belong to one.
struct Row {
  std::vector<std::int32_t> tokens, labels, documents;
  std::vector<std::int32_t> positions;  // within the document: the ones that rotary and learned positions use
  std::vector<double> weights;          // of the labels
  std::int64_t size() const { return std::ssize(tokens); }
};

class Model {
 public:
  /// weights: named and shaped as in checkpoints. rounds empty: exact except for double's own rounding.
  Model(ModelSpec spec, Tensors weights, Rounds rounds = {});
  ~Model();

  /// Fills t with every tensor of the forward pass except logits. Returns the sum of weight * nll over the row's
  /// labels.
  double forward(const Row& row, Tensors& t) const;
  /// After forward: fills t with the gradients of sum(weight * nll) / denominator with respect to these tensors (named
  /// with the prefix "grad."), and adds those of the weights to `gradients`, by the weights' names.
  void backward(const Row& row, double denominator, Tensors& t, Tensors& gradients) const;

 private:
  struct Pass;
  std::unique_ptr<const Pass> pass_;
};

}  // namespace ringtrain::reference
