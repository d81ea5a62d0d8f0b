// The whole model in plain double: what ringtrain computes, to be read beside the papers. One sequence after another,
// one token row after another; no tiles, no ring, no layouts, no shards. It has every trait of layers/model_spec.h, and
// shares no code with the kernels, the ring, the loader or the optimizer. `check` holds runs against it, and tests hold
// it against finite differences and against PyTorch's numbers.
//
// Tensors have the names of a dump (docs/debugging.md), so a reader finds a run's numbers beside these.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "layers/model_spec.h"
#include "reference/attention.h"
#include "reference/operations.h"
#include "reference/rope.h"

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

  /// Fills t with every tensor of the forward pass but logits. Returns the sum of weight * nll over the row's labels.
  double forward(const Row& row, Tensors& t) const;
  /// After forward: fills t with the gradients of sum(weight * nll) / denominator with respect to these tensors
  /// ("grad." before the name), and adds those of the weights to `gradients`, by the weights' names.
  void backward(const Row& row, double denominator, Tensors& t, Tensors& gradients) const;

  const ModelSpec& spec() const { return spec_; }

 private:
  /// Names of layer I's tensors and weights, and of those around its halves.
  struct Half;
  struct Layer;
  Layer layer_at(std::int64_t index) const;
  void attention_forward(const Layer& layer, const Row& row, Tensors& t) const;
  void feedforward_forward(const Layer& layer, Tensors& t) const;
  void head_backward(const Row& row, double denominator, Tensors& t, Tensors& gradients) const;
  Vector feedforward_backward(const Layer& layer, Vector residual, Tensors& t, Tensors& gradients) const;
  Vector attention_backward(const Layer& layer, const Row& row, Vector residual, Tensors& t, Tensors& gradients) const;

  const Vector& weight(const std::string& name) const { return weights_.at(name); }
  const Vector* optional(const std::string& name) const;
  std::string head_name() const { return spec_.tied_head ? "model.embed_tokens.weight" : "lm_head.weight"; }
  Vector project(const std::string& name, const Vector& x, std::int64_t I, std::int64_t O) const;
  /// Adds project()'s gradient to dx, and those of its weights to `gradients`.
  void project_backward(const std::string& name, Vector& dx, const Vector& dy, const Vector& x, std::int64_t I,
                        std::int64_t O, Tensors& gradients) const;
  /// Returns what half a block computes from: its input, or, kept, that normed.
  const Vector& half_input(const Half& half, const Vector& input, Tensors& t) const;
  /// Returns what half a block adds to the residual stream: a product, or, the product being kept, that normed.
  Vector half_output(const Half& half, Vector product, Tensors& t) const;
  /// The gradients of both: of the product, from that of the residual stream; to which that of the input is added.
  Vector half_output_backward(const Half& half, const Vector& residual, Tensors& t, Tensors& gradients) const;
  void half_input_backward(const Half& half, Vector dinput, const Vector& input, Vector& residual, Tensors& t,
                           Tensors& gradients) const;
  /// Returns a norm's weight, from 1 on where the model counts it so.
  Vector norm_weight(const std::string& name) const;
  Vector normed(const std::string& name, const Vector& x) const;
  /// Returns what the head multiplies of a token's final_norm.
  Vector head_input(const Tensors& t, std::int64_t token) const;
  /// Returns the logits of a token from t's final_norm.
  Vector logits_of(const Tensors& t, std::int64_t token) const;
  /// Returns the gradient of normed() with respect to x; those of its weights add to `gradients`.
  Vector norm_backward(const std::string& name, const Vector& dy, const Vector& x, Tensors& gradients) const;
  /// Returns the attention of a layer, with its sinks, if it has them.
  Attention attention_of(const Layer& layer) const;
  Rotation rotation_of(const Layer& layer, const Row& row) const;
  /// Returns x, whose elements sums of `terms` products have made.
  Vector summed(Vector x, std::int64_t terms, Summing summing = Summing::in_blocks) const;
  /// Keeps x under this name, as a run stores it, and returns it.
  const Vector& keep(Tensors& t, const std::string& name, Vector x) const;
  /// Returns dy as the sums over its T tokens take it.
  Vector over_tokens(Vector dy, std::int64_t width) const;

  ModelSpec spec_;
  Tensors weights_;
  Vector head_transposed_;  // [C, V]
  Rounds rounds_;
};

}  // namespace ringtrain::reference
