#include "train/planning/work.h"

#include "layers/model_parameters.h"
#include "layers/model_spec.h"

namespace ringtrain {

namespace {

double real(std::int64_t value) {
  return static_cast<double>(value);
}

/// Widths of a model, as numbers to multiply.
struct Widths {
  explicit Widths(const ModelConfig& model)
      : C(real(model.hidden_size)),
        F(real(model.intermediate_size)),
        V(real(model.vocab_size)),
        HD(real(model.num_attention_heads * model.head_dim)),
        GD(real(model.num_key_value_heads * model.head_dim)),
        L(real(model.num_hidden_layers)),
        gated(model_spec(model).gated_feedforward) {}

  double projections() const { return 2 * (C * HD + 2 * C * GD + HD * C); }  // query, key, value, output
  double expand() const { return 2 * C * F * (gated ? 2 : 1); }              // up, gate
  double feedforward() const { return expand() + 2 * F * C; }
  double head() const { return 2 * C * V; }

  double C, F, V, HD, GD, L;
  bool gated;
};

}  // namespace

StepFlops step_flops(const ModelConfig& model, const TrainingConfig& training, double pairs) {
  const Widths w(model);
  const double sequences = real(training.global_batch_size), tokens = sequences * real(training.seq_len);
  const double forward_pairs = 4 * w.HD * pairs * sequences * w.L;
  const LayerWork layer = layer_work(model, training);
  return {.projections = 3 * w.projections() * w.L * tokens,
          .feedforward = 3 * w.feedforward() * w.L * tokens,
          .head = 3 * w.head() * tokens,
          .attention_forward = forward_pairs,
          .attention_backward = 2.5 * forward_pairs,
          .recompute = layer.recompute_flops * w.L * tokens + (layer.attention_again ? forward_pairs : 0)};
}

LayerWork layer_work(const ModelConfig& model, const TrainingConfig& training) {
  const Widths w(model);
  const double e = static_cast<double>(size_of(training.dtype));
  const double accumulator_bytes = static_cast<double>(size_of(accumulator(training.dtype)));
  LayerWork work;
  work.forward_flops = w.projections() + w.feedforward();
  work.backward_flops = 2 * work.forward_flops;
  if (training.recompute != Recompute::none) work.recompute_flops = w.projections() + w.expand();
  work.attention_again = training.recompute == Recompute::full;
  work.overlap_flops = 4 * w.C * w.HD;
  // A product reads a row of its input and writes one of its output; both of its backward products do the like.
  const double projected = 4 * w.C + 2 * w.HD + 2 * w.GD, expanded = (w.gated ? 2 : 1) * (w.C + w.F);
  work.forward_product_bytes = e * (projected + expanded + w.F + w.C);
  work.backward_product_bytes = 2 * work.forward_product_bytes;
  if (training.recompute != Recompute::none) work.recompute_product_bytes = e * (projected + expanded);
  work.overlap_product_bytes = 2 * e * (w.C + w.HD);
  // Each tensor once for each time that a kernel reads or writes it: two norms (read, write), RoPE in place, the
  // activation (its operands and its product), two residual sums (two read, one written).
  const double norms = 4 * w.C, rope = 2 * (w.HD + w.GD), activation = (w.gated ? 3 : 2) * w.F, residuals = 6 * w.C;
  const double forward_elements = norms + rope + activation + residuals;
  work.forward_bytes = e * forward_elements;
  // Backward reads what forward read and a gradient besides, and keeps sums of queries, keys and values.
  work.backward_bytes = e * (2 * (norms + rope + activation) + residuals) + accumulator_bytes * (4 * w.HD + 4 * w.GD) +
                        (training.recompute == Recompute::none ? e * (norms + activation) : work.forward_bytes);
  return work;
}

double head_flops(const ModelConfig& model) {
  return 3 * Widths(model).head();
}

double head_product_bytes(const ModelConfig& model, DType dtype) {
  return 3 * static_cast<double>(size_of(dtype)) * real(model.hidden_size + model.vocab_size);
}

std::int64_t multiplied_parameters(const ModelConfig& model) {
  const auto [table, ids] = describe_parameters(model_spec(model));
  std::int64_t count = table.count();
  if (ids.position_embedding >= 0) count -= table[ids.position_embedding].shape.numel();
  if (!ids.tied) count -= table[ids.token_embedding].shape.numel();
  return count;
}

UsefulFlops useful_flops(const ModelConfig& model) {
  const Widths w(model);
  return {.of_a_token = 6 * real(multiplied_parameters(model)), .of_a_pair = 12 * w.L * w.HD};
}

double key_value_bytes(const ModelConfig& model, DType dtype) {
  return 2 * Widths(model).GD * static_cast<double>(size_of(dtype));
}

double key_value_gradient_bytes(const ModelConfig& model, DType dtype) {
  return key_value_bytes(model, accumulator(dtype));
}

}  // namespace ringtrain
