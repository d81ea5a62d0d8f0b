// Counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011).
// Every number is a pure function of (seed, purpose, index), so it does not depend on how many ranks or threads draw
// it.
#pragma once

#include <array>
#include <cstdint>

namespace ringtrain {

/// The purpose of a stream of random numbers. The values are part of reproducibility: append, never renumber.
enum class Purpose : std::uint32_t {
  weights = 1,     // index: the parameter's stream << 40 | element
  data_order = 2,  // index: epoch
  synthetic_data = 3,
  evaluation_targets = 4,
  document_order = 5,
  simulation = 6,  // index: of a document, or rank and hop of a kernel call
  sampling = 7,    // index: the new token, from 0
  audit = 8,       // index: step << 34 | rank << 8 | row
  rounding = 9,    // index: the parameter's stream << 40 | step
  test = 100,
};

/// Returns Philox4x32-10 of a counter under a key: the published function, on which everything below is based.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// Returns the 128 bits at index, as four words.
std::array<std::uint32_t, 4> random_words(std::uint64_t seed, Purpose purpose, std::uint64_t index);
/// Returns 64 uniform bits.
std::uint64_t random_bits(std::uint64_t seed, Purpose purpose, std::uint64_t index);
/// Returns a uniform double in [0, 1).
double random_uniform(std::uint64_t seed, Purpose purpose, std::uint64_t index);
/// Returns a standard normal double (Box-Muller).
double random_normal(std::uint64_t seed, Purpose purpose, std::uint64_t index);
/// Returns a uniform integer in [0, bound), bound >= 1.
std::uint64_t random_below(std::uint64_t seed, Purpose purpose, std::uint64_t index, std::uint64_t bound);

/// A pseudo-random permutation of [0, size) in O(1) memory: a Feistel network with cycle walking.
class Permutation {
 public:
  Permutation(std::uint64_t size, std::uint64_t seed, Purpose purpose, std::uint64_t index);
  /// Returns the image of i, i < size.
  std::uint64_t operator()(std::uint64_t i) const;

 private:
  std::uint64_t size_, seed_, index_;
  Purpose purpose_;
  int half_bits_;
};

}  // namespace ringtrain
