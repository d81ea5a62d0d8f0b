// The parameter table: every weight of a model by global name, in one fixed order, grouped into buckets. A layer
// acquires its weights one bucket at a time, and gradients are reduced one bucket at a time. Trained and frozen
// parameters are two parts of the table. Each part of all buckets is one flat buffer, in which every parameter starts
// at a multiple of 16 elements (padding stays zero).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/error.h"
#include "framework/tensor.h"

namespace ringtrain {

enum class Part { trainable, frozen };
inline constexpr std::array both_parts{Part::trainable, Part::frozen};
/// Returns the index of a part in a list with one element per part.
inline constexpr std::size_t index_of(Part part) {
  return static_cast<std::size_t>(part);
}

struct Parameter {
  std::string name;  // e.g. "model.layers.0.self_attn.q_proj.weight"
  Shape shape;
  int bucket = 0;         // 0: embedding, 1..L: blocks, L+1: final norm and head
  bool decay = true;      // false for norms and biases
  double init_value = 0;  // used if init_stddev is 0
  double init_stddev = 0;
  Part part = Part::trainable;
  std::uint64_t stream = 0;  // of the random numbers of its initial values and of rounding
  bool adapter = false;      // a factor of an update that is added to a weight (layers/lora.h)
  bool saved = true;         // false: frozen, and stored in the files of the base that a checkpoint of adapters names
  std::int64_t offset = 0;   // elements from the start of its part's flat buffer; set by ParameterTable
};

class ParameterTable {
 public:
  /// Appends a parameter; buckets must not decrease, otherwise Error(usage) that names the caller's line. Returns its
  /// id.
  int add(Parameter parameter, const CallerLine& line = CallerLine::current());
  /// Returns all parameters, by id.
  const std::vector<Parameter>& all() const { return parameters_; }
  /// Returns a parameter by id; unchecked.
  const Parameter& operator[](int id) const { return parameters_[id]; }
  /// Returns the number of buckets.
  int buckets() const { return static_cast<int>(ends_.size()); }
  /// Returns the first of bucket's elements [begin, end) in a part's flat buffer, padding included.
  std::int64_t bucket_begin(int bucket, Part part = Part::trainable) const;
  /// Returns the end of these elements.
  std::int64_t bucket_end(int bucket, Part part = Part::trainable) const;
  /// Returns the number of these elements.
  std::int64_t bucket_size(int bucket, Part part) const {
    return bucket_end(bucket, part) - bucket_begin(bucket, part);
  }
  /// Returns the number of elements of a part's flat buffer, padding included.
  std::int64_t flat_size(Part part = Part::trainable) const;
  /// Returns the number of parameters without padding, of both parts.
  std::int64_t count() const;
  /// The same for one part.
  std::int64_t count(Part part) const;
  /// Returns the lowest bucket with trained parameters, at which backward ends; the last bucket if there is none.
  int lowest_trained() const;

  /// Whether the last bucket is used while the first one is (a head that is tied to the embedding).
  bool ends_together = false;

 private:
  std::vector<Parameter> parameters_;
  std::vector<std::array<std::int64_t, both_parts.size()>> ends_;  // of each bucket, by part
};

}  // namespace ringtrain
