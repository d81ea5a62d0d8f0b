// Computes the numbers of an evaluation from sums per target block. Documents, not tokens, are the independent draws,
// so the interval is that of a cluster ratio estimator: mean = sum S_d / sum W_d over documents d, variance = D / (D -
// 1) * sum (S_d - mean W_d)^2 / (sum W_d)^2 (Cochran, Sampling Techniques, 1977, chapter 6), with Student's t of D - 1
// degrees of freedom. Differences between lengths are paired by document. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ringtrain {

/// What one block contributes at one context length.
struct BlockSums {
  double nll = 0;      // sum of weight * nll, nats
  double weight = 0;   // sum of weights
  double bytes = 0;    // of the targets' text, times their weights; ends of documents have none; 0: unknown
  double targets = 0;  // how many have a weight
};

struct Interval {
  double low = 0, high = 0;
};

/// An estimate with its 95 % interval; both ends are NaN with a single document.
struct Estimate {
  double value = 0;
  Interval ci95;
};

/// What one document contributes to a mean: its sum of weight * value, and its sum of weights.
struct DocumentSum {
  std::int64_t document = 0;
  double sum = 0, weight = 0;
};
/// Returns the ratio of the sum of sums to the sum of weights, with its interval over documents; NaN without documents.
Estimate estimate_over(std::span<const DocumentSum> sums);

/// What one block contributes at one context length in a bucket of positions.
struct PositionSums {
  double nll = 0, weight = 0, targets = 0;  // as in BlockSums
  double longest_nll = 0;                   // of the same tokens, in the window of the longest context
};

/// The result in a bucket of positions. A target's position is the number of tokens before it in its window.
struct PositionResult {
  std::int64_t first = 0, last = 0;  // positions, both inclusive
  std::int64_t targets = 0;
  Estimate nll;
  Estimate cut;  // nll here minus that of the same tokens in the window of the longest context; paired by document
};

/// The result at one context length.
struct LengthResult {
  std::int64_t context_length = 0;
  std::int64_t targets = 0;  // scored
  Estimate nll;              // nats per target
  double perplexity = 0;
  double bits_per_byte = 0;                      // NaN if the bytes are not known
  Estimate delta;                                // nll minus that of the first (shortest) length
  std::vector<PositionResult> by_position = {};  // in ascending order; empty: not requested
};

/// Returns one result per length. sums: [lengths][blocks], flat; documents: of each block.
std::vector<LengthResult> summarize(std::span<const std::int64_t> lengths, std::span<const BlockSums> sums,
                                    std::span<const std::int64_t> documents);

/// Returns the bucket of a position p >= 1: bucket 0 holds position 1; bucket k holds those from 2^(k-1) + 1 to 2^k.
std::int64_t position_bucket(std::int64_t position);

/// Returns the results of a window of context_length tokens, one per bucket, leaving out buckets without a weight.
/// sums: [blocks][buckets], flat; documents: of each block.
std::vector<PositionResult> summarize_positions(std::int64_t context_length, std::span<const PositionSums> sums,
                                                std::span<const std::int64_t> documents);

/// Returns t such that a Student variable with this many degrees of freedom (>= 1) lies in [-t, t] with probability p.
double student_t(double p, double degrees);

}  // namespace ringtrain
