// What a training step has to compute and to move, by part: floating-point operations, passes over memory, messages.
// Counted, not measured; of a config alone. extras/planner/rates.h has the seconds of it. Pure.
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
/// is 4 D H forward and 10 D H backward (attention keeps no scores: it computes them again).
struct StepFlops {
  double projections = 0, feedforward = 0, head = 0;  // forward and backward
  double adapters = 0;                                // the same, and x A^T again in backward
  double attention_forward = 0, attention_backward = 0;
  double recompute = 0;  // what the policy does again in backward
  double total() const {
    return projections + feedforward + head + adapters + attention_forward + attention_backward + recompute;
  }
};

/// What of a model is trained, and how far backward goes for it: no weight gradient of what is frozen, and nothing
/// below the lowest layer with something to train.
struct TrainedParts {
  std::int64_t layers = 0;  // those that backward goes through
  // Parameters that every token is multiplied with: all but a position table, and but an input embedding beside a head
  // of its own; one that is the head, too, counts once.
  std::int64_t multiplied = 0;  // N
  std::int64_t passed = 0;      // N_b: those of the head and of layers that backward goes through
  std::int64_t trained = 0;     // N_t: those that are trained
  bool all() const { return trained == multiplied; }
};
TrainedParts trained_parts(const ModelConfig& model, const TrainingConfig& training);

/// What one token costs a rank, of one layer.
struct LayerWork {
  std::int64_t backward_layers = 0;              // that have a backward; where they differ, it is that of their mean
  double adapters = 0;                           // how many it has
  double forward_flops = 0;                      // products: projections, feedforward, adapters
  double backward_flops = 0;                     // their backward
  double recompute_flops = 0;                    // of products, in backward
  bool attention_again = false;                  // the ring forward, too, in backward (recompute full)
  double forward_bytes = 0, backward_bytes = 0;  // norms, RoPE, activation, residuals: what they read and write
  double forward_product_bytes = 0, backward_product_bytes = 0, recompute_product_bytes = 0;  // what products do
  // Of backward: the query projection's, while the last gradients return to their owners.
  double overlap_flops = 0, overlap_product_bytes = 0;
};

/// Visible pairs of a query and a key, summed over the layers: over all, and over those that backward goes through.
struct LayerPairs {
  double forward = 0, backward = 0;
};
/// A mask, and how many layers have it: of all, and of those that backward goes through.
struct MaskCount {
  AttentionMask mask;
  double forward = 0, backward = 0;
};
std::vector<MaskCount> mask_counts(const ModelConfig& model, const TrainingConfig& training);
/// pairs_of: those of one layer with a mask.
LayerPairs layer_pairs(const std::vector<MaskCount>& masks,
                       const std::function<double(const AttentionMask&)>& pairs_of);

/// Returns the FLOPs of a step. pairs: of one sequence (documents counted).
StepFlops step_flops(const ModelConfig& model, const TrainingConfig& training, const LayerPairs& pairs);
/// Returns what a token of a rank costs in one layer.
LayerWork layer_work(const ModelConfig& model, const TrainingConfig& training);
/// Returns how many products of the head's size a step has: forward, its input's gradient, and its weights' if they
/// are trained.
double head_products(const ModelConfig& model, const TrainingConfig& training);
/// Returns the FLOPs of one of them for one token, and what it reads and writes.
double head_flops(const ModelConfig& model);
double head_product_bytes(const ModelConfig& model, DType dtype);

/// The FLOPs that count as useful: 2 (N + N_b + N_t) a token, and for a visible pair of a query and a key 4 C in each
/// layer and 8 C in each that backward goes through, C = heads x head size. With all trained these are 6 N and 12 L C,
/// L layers (Chowdhery et al., "PaLM", 2022, appendix B, which counts T pairs a token: no mask).
struct UsefulFlops {
  double of_a_token = 0, of_a_pair = 0;  // the second forward
  double of(double tokens, const LayerPairs& pairs) const {
    return of_a_token * tokens + of_a_pair * (pairs.forward + 2 * pairs.backward);
  }
};
UsefulFlops useful_flops(const ModelConfig& model, const TrainingConfig& training);
/// Returns what MFU divides by what, as text, and the numbers in it.
std::string mfu_formula(const TrainedParts& parts);
std::string mfu_numbers(const TrainedParts& parts);

/// Returns the bytes of keys and values of one token, as the ring sends them; of an accumulator's dtype, those of their
/// gradients.
double key_value_bytes(const ModelConfig& model, DType dtype);

}  // namespace ringtrain
