// What a training step has to compute and to move, by part: floating-point operations, passes over memory, and
// messages. Counted from a config, not measured; extras/planner/rates.h converts it to seconds. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/dtype.h"
#include "framework/sequence/segments.h"

namespace ringtrain {

struct ModelConfig;
struct TrainingConfig;

/// FLOPs of a step over the whole mesh. A product of [M, K] and [K, N] is 2 M K N; a visible pair of a query and a key
/// is 4 D H forward and 10 D H backward (attention keeps no scores: backward recomputes them).
struct StepFlops {
  double projections = 0, feedforward = 0, head = 0;  // forward and backward
  double adapters = 0;                                // the same, and x A^T again in backward
  double attention_forward = 0, attention_backward = 0;
  double recompute = 0;  // what the policy recomputes in backward
  double total() const {
    return projections + feedforward + head + adapters + attention_forward + attention_backward + recompute;
  }
};

/// Which parts of a model are trained, and how far backward goes for them: it computes no weight gradient of a frozen
/// weight, and nothing below the lowest layer that has something to train.
struct TrainedParts {
  std::int64_t layers = 0;  // that backward visits
  // Parameters that every token is multiplied by: all except a position table and the input embedding of a model whose
  // head is separate; an embedding that is also the head counts once.
  std::int64_t multiplied = 0;  // N
  std::int64_t passed = 0;      // N_b: those of the head and of the layers that backward visits
  std::int64_t trained = 0;     // N_t: those that are trained
  bool all() const { return trained == multiplied; }
};
TrainedParts trained_parts(const ModelConfig& model, const TrainingConfig& training);

/// The cost of one token on a rank, in one layer.
struct LayerWork {
  std::int64_t backward_layers = 0;              // layers with a backward; if they differ, costs are their mean
  double adapters = 0;                           // how many a layer has
  double forward_flops = 0;                      // products: projections, feedforward, adapters
  double backward_flops = 0;                     // their backward
  double recompute_flops = 0;                    // of products, in backward
  bool attention_again = false;                  // backward runs the ring forward again, too (recompute full)
  double forward_bytes = 0, backward_bytes = 0;  // what norms, RoPE, activation, and residuals read and write
  double forward_product_bytes = 0, backward_product_bytes = 0, recompute_product_bytes = 0;  // the same for products
  // The query projection's part of backward, while the last gradients return to their owners.
  double overlap_flops = 0, overlap_product_bytes = 0;
};

/// Visible pairs of a query and a key, summed over all layers, and over those that backward visits.
struct LayerPairs {
  double forward = 0, backward = 0;
};
/// A mask, and how many layers have it: of all, and of those that backward visits.
struct MaskCount {
  AttentionMask mask;
  double forward = 0, backward = 0;
};
std::vector<MaskCount> mask_counts(const ModelConfig& model, const TrainingConfig& training);
/// pairs_of: returns those of one layer with a mask.
LayerPairs layer_pairs(const std::vector<MaskCount>& masks,
                       const std::function<double(const AttentionMask&)>& pairs_of);

/// Returns the FLOPs of a step. pairs: of one sequence (counting documents).
StepFlops step_flops(const ModelConfig& model, const TrainingConfig& training, const LayerPairs& pairs);
/// Returns the cost of a rank's token in one layer.
LayerWork layer_work(const ModelConfig& model, const TrainingConfig& training);
/// Returns how many products of the head's size a step has: forward, the input's gradient, and the weights' gradient if
/// they are trained.
double head_products(const ModelConfig& model, const TrainingConfig& training);
/// Returns the FLOPs of one of them for one token, and what it reads and writes.
double head_flops(const ModelConfig& model);
double head_product_bytes(const ModelConfig& model, DType dtype);

/// The FLOPs that count as useful: 2 (N + N_b + N_t) per token, and, per visible pair of a query and a key, 4 C in each
/// layer and 8 C in each layer that backward visits, C = heads x head size. If everything is trained, these are 6 N and
/// 12 L C, with L layers (Chowdhery et al., "PaLM", 2022, appendix B, which counts T pairs per token: no mask).
struct UsefulFlops {
  double of_a_token = 0, of_a_pair = 0;  // the second forward
  double total(double tokens, const LayerPairs& pairs) const {
    return of_a_token * tokens + of_a_pair * (pairs.forward + 2 * pairs.backward);
  }
};
UsefulFlops useful_flops(const ModelConfig& model, const TrainingConfig& training);
/// Returns, as text, the formula of MFU with its numbers.
std::string mfu_formula(const TrainedParts& parts);
std::string mfu_numbers(const TrainedParts& parts);

/// Returns the bytes of one token's keys and values, as the ring sends them; with an accumulator's dtype, those of
/// their gradients.
double key_value_bytes(const ModelConfig& model, DType dtype);

}  // namespace ringtrain
