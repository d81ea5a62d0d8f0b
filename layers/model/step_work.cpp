#include "layers/model/step_work.h"

#include <fmt/core.h>

#include <algorithm>

#include "framework/config/model_config.h"
#include "framework/config/training_config.h"
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
        L(real(model.num_hidden_layers)) {
    const ModelSpec spec = model_spec(model);
    gated = spec.gated_feedforward;
    before = spec.norm_before ? 1 : 0;
    after = spec.norm_after ? 1 : 0;
  }

  double projections() const { return 2 * (C * HD + 2 * C * GD + HD * C); }  // query, key, value, output
  double expand() const { return 2 * C * F * (gated ? 2 : 1); }              // up, gate
  double feedforward() const { return expand() + 2 * F * C; }
  double head() const { return 2 * C * V; }

  double C, F, V, HD, GD, L;
  bool gated;
  double before, after;  // norms of each half of a block
};

/// Returns how many of the model's layers backward visits.
std::int64_t backward_layers_of(const ParameterTable& table, std::int64_t layers) {
  return layers - std::clamp<std::int64_t>(table.lowest_trained() - 1, 0, layers);
}

/// Costs per token of products that only some layers and runs have: sums over the layers.
struct Parts {
  double flops = 0, bytes = 0;
  void add(double of_flops, double of_bytes) {
    flops += of_flops;
    bytes += of_bytes;
  }
};
struct LayerSums {
  LayerSums(const ModelConfig& model, const TrainingConfig& training) {
    const ModelSpec spec = model_spec(model);
    const auto [table, ids] = describe_parameters(spec, training.trainable);
    const std::int64_t layers = spec.num_hidden_layers();
    backward_layers = backward_layers_of(table, layers);
    head_products = table[ids.head.weight].part == Part::trainable ? 3 : 2;
    const double e = static_cast<double>(size_of(training.dtype));
    for (const Parameter& parameter : table.all()) {
      if (parameter.bucket < 1 || parameter.bucket > layers || parameter.shape.rank() != 2) continue;
      const double product = 2 * real(parameter.shape.numel());
      const std::string projection = projection_of(parameter.adapter ? adapted_weight(parameter.name) : parameter.name);
      const bool query = projection == "q_proj";
      if (!parameter.adapter) {
        if (parameter.part == Part::frozen) continue;
        const double rows = e * real(parameter.shape[0] + parameter.shape[1]);
        (parameter.name.find(".mlp.") == std::string::npos ? projections : feedforward).add(product, rows);
        if (query) query_backward.add(product, rows);
        continue;
      }
      // Products with A [r, I] and B [O, r]: in forward, one each; in backward, the input's gradient, x A^T again, the
      // gradients of both, and dy B for both A's gradient and the input's. A separate pass scales the tensors of width
      // r.
      const bool is_a = parameter.name == lora_names(adapted_weight(parameter.name)).a;
      const double r = real(model.lora.rank), width = real(parameter.shape[is_a ? 1 : 0]);
      ++adapters;
      const double forward_rows = e * (is_a ? width + 3 * r : 2 * width + r);
      const double backward_rows = e * (is_a ? 4 * width + 5 * r : 3 * width + 7 * r);
      adapter_forward.add(product, forward_rows);
      adapter_backward.add(3 * product, backward_rows);
      if (projection != "down_proj") adapter_recompute.add(product, forward_rows);
      if (query) query_backward.add(3 * product, backward_rows);
    }
    adapters /= 2;
  }
  double of_backward(double sum) const { return backward_layers > 0 ? sum / real(backward_layers) : 0; }

  std::int64_t backward_layers = 0;
  double head_products = 0;
  double adapters = 0;
  Parts projections, feedforward;  // gradients of weights that are trained
  Parts adapter_forward, adapter_backward, adapter_recompute;
  Parts query_backward;  // of the query projection's weights and adapter
};

}  // namespace

LayerWork layer_work(const ModelConfig& model, const TrainingConfig& training) {
  const Widths w(model);
  const LayerSums sums(model, training);
  const auto mean = [&](double sum) { return sums.of_backward(sum); };
  const double e = static_cast<double>(size_of(training.dtype));
  const double accumulator_bytes = static_cast<double>(size_of(accumulator(training.dtype)));
  const double input_products = w.projections() + w.feedforward();
  LayerWork work;
  work.backward_layers = sums.backward_layers;
  work.adapters = sums.adapters / w.L;
  work.forward_flops = input_products + sums.adapter_forward.flops / w.L;
  work.backward_flops =
      input_products + mean(sums.projections.flops + sums.feedforward.flops + sums.adapter_backward.flops);
  work.attention_again = training.recompute == Recompute::full;
  work.overlap_flops = 2 * w.C * w.HD + mean(sums.query_backward.flops);
  // A product reads a row of its input and writes a row of its output; so do both of its backward products.
  const double projected = 4 * w.C + 2 * w.HD + 2 * w.GD, expanded = (w.gated ? 2 : 1) * (w.C + w.F);
  const double input_rows = e * (projected + expanded + w.F + w.C);
  work.forward_product_bytes = input_rows + sums.adapter_forward.bytes / w.L;
  work.backward_product_bytes =
      input_rows + mean(sums.projections.bytes + sums.feedforward.bytes + sums.adapter_backward.bytes);
  if (training.recompute != Recompute::none) {
    work.recompute_flops = w.projections() + w.expand() + mean(sums.adapter_recompute.flops);
    work.recompute_product_bytes = e * (projected + expanded) + mean(sums.adapter_recompute.bytes);
  }
  // If a half ends in a norm, backward recomputes what that norm reads.
  work.recompute_flops += w.after * (2 * w.C * w.HD + 2 * w.C * w.F);
  work.recompute_product_bytes += w.after * e * (w.HD + w.F + 2 * w.C);
  work.overlap_product_bytes = e * (w.C + w.HD) + mean(sums.query_backward.bytes);
  // Each tensor counts once for each time that a kernel reads or writes it: norms (read, write), RoPE in place, the
  // activation (its operands and its product), and two residual sums (two read, one written).
  const double norms = (w.before + w.after) * 4 * w.C, rope = 2 * (w.HD + w.GD), activation = (w.gated ? 3 : 2) * w.F,
               residuals = 6 * w.C;
  const double forward_elements = norms + rope + activation + residuals;
  work.forward_bytes = e * forward_elements;
  // Backward reads what forward read plus a gradient, and keeps sums of queries, keys, and values. Its pass over the
  // activation also makes the product again, which a norm after the feedforward needs before that pass.
  work.backward_bytes = e * (2 * (norms + rope + activation) + residuals) + accumulator_bytes * (4 * w.HD + 4 * w.GD) +
                        e * (training.recompute == Recompute::none ? norms : forward_elements - activation) +
                        e * w.after * activation;
  return work;
}

TrainedParts trained_parts(const ModelConfig& model, const TrainingConfig& training) {
  const auto [table, ids] = describe_parameters(model_spec(model), training.trainable);
  const int lowest = table.lowest_trained();
  TrainedParts parts;
  parts.layers = backward_layers_of(table, model.num_hidden_layers);
  for (int id = 0; id < static_cast<int>(table.all().size()); ++id) {
    const Parameter& parameter = table[id];
    const bool is_head = id == ids.head.weight;
    if (id == ids.position_embedding || (id == ids.token_embedding && !is_head)) continue;
    const std::int64_t count = parameter.shape.numel();
    parts.multiplied += count;
    if (is_head || parameter.bucket >= lowest) parts.passed += count;
    if (parameter.part == Part::trainable) parts.trained += count;
  }
  return parts;
}

std::vector<MaskCount> mask_counts(const ModelConfig& model, const TrainingConfig& training) {
  const std::int64_t first = model.num_hidden_layers - trained_parts(model, training).layers;
  std::vector<MaskCount> counts;
  for (const auto& [mask, layers] : layers_by_mask(model)) {
    const auto backward = std::ranges::count_if(layers, [&](std::int64_t layer) { return layer >= first; });
    counts.push_back({.mask = mask, .forward = real(std::ssize(layers)), .backward = real(backward)});
  }
  return counts;
}

LayerPairs layer_pairs(const std::vector<MaskCount>& masks,
                       const std::function<double(const AttentionMask&)>& pairs_of) {
  LayerPairs sums;
  for (const MaskCount& count : masks) {
    const double pairs = pairs_of(count.mask);
    sums.forward += pairs * count.forward;
    sums.backward += pairs * count.backward;
  }
  return sums;
}

StepFlops step_flops(const ModelConfig& model, const TrainingConfig& training, const LayerPairs& pairs) {
  const Widths w(model);
  const LayerSums sums(model, training);
  const double sequences = real(training.global_batch_size), tokens = sequences * real(training.seq_len);
  const double of_a_pair = 4 * w.HD * sequences, backward = real(sums.backward_layers);
  const LayerWork layer = layer_work(model, training);
  return {.projections = tokens * (w.projections() * (w.L + backward) + sums.projections.flops),
          .feedforward = tokens * (w.feedforward() * (w.L + backward) + sums.feedforward.flops),
          .head = tokens * sums.head_products * w.head(),
          .adapters = tokens * (sums.adapter_forward.flops + sums.adapter_backward.flops),
          .attention_forward = of_a_pair * pairs.forward,
          .attention_backward = 2.5 * of_a_pair * pairs.backward,
          .recompute =
              backward * layer.recompute_flops * tokens + (layer.attention_again ? of_a_pair * pairs.backward : 0)};
}

double head_products(const ModelConfig& model, const TrainingConfig& training) {
  return LayerSums(model, training).head_products;
}

double head_flops(const ModelConfig& model) {
  return Widths(model).head();
}

double head_product_bytes(const ModelConfig& model, DType dtype) {
  return static_cast<double>(size_of(dtype)) * real(model.hidden_size + model.vocab_size);
}

UsefulFlops useful_flops(const ModelConfig& model, const TrainingConfig& training) {
  const Widths w(model);
  const TrainedParts parts = trained_parts(model, training);
  return {.of_a_token = 2 * real(parts.multiplied + parts.passed + parts.trained), .of_a_pair = 4 * w.HD};
}

std::string mfu_formula(const TrainedParts& parts) {
  return parts.all() ? "6 N FLOPs per token and 12 L C per visible pair, over the dense peak"
                     : "2 (N + N_b + N_t) FLOPs per token and 4 (L + 2 L_b) C per visible pair, over the dense peak";
}

std::string mfu_numbers(const TrainedParts& parts) {
  const std::string all = fmt::format("N = {}", parts.multiplied);
  return parts.all() ? all
                     : fmt::format("{}, N_b = {}, N_t = {}, L_b = {}", all, parts.passed, parts.trained, parts.layers);
}

double key_value_bytes(const ModelConfig& model, DType dtype) {
  return 2 * Widths(model).GD * static_cast<double>(size_of(dtype));
}

}  // namespace ringtrain
