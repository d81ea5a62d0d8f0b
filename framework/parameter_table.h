// The parameter table: every weight of a model by global name, in one fixed order, grouped into buckets. A bucket is
// the unit in which a layer asks for its weights and in which gradients are reduced. What of it is trained and what is
// frozen are two parts: each part of all buckets is one flat buffer, where every parameter starts at a multiple of 16
// elements (padding stays zero).
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
/// Returns the place of what belongs to a part in a list by part.
inline constexpr std::size_t index_of(Part part) {
  return static_cast<std::size_t>(part);
}

struct Parameter {
  std::string name;  // e.g. "model.layers.0.self_attn.q_proj.weight"
  Shape shape;
  int bucket = 0;         // 0: embedding, 1..L: blocks, L+1: final norm and head
  bool decay = true;      // false for norms and biases
  double init_value = 0;  // where init_stddev is 0
  double init_stddev = 0;
  Part part = Part::trainable;
  std::uint64_t stream = 0;  // of the random numbers of its initial values
  bool adapter = false;      // a factor of what is added to a weight (layers/lora.h)
  bool saved = true;         // false: frozen, and held by the files of the base that a checkpoint of adapters names
  std::int64_t offset = 0;   // elements from the start of its part's flat buffer; set by ParameterTable
};

class ParameterTable {
 public:
  /// Appends a parameter; buckets must not decrease, else Error(usage) that names the caller's line. Returns its id.
  int add(Parameter parameter, const CallerLine& line = CallerLine::current());
  /// Returns all parameters, by id.
  const std::vector<Parameter>& all() const { return parameters_; }
  /// Returns a parameter by id; unchecked.
  const Parameter& operator[](int id) const { return parameters_[id]; }
  /// Returns the number of buckets.
  int buckets() const { return static_cast<int>(ends_.size()); }
  /// Returns elements [begin, end) of a part's flat buffer that bucket holds, padding included.
  std::int64_t bucket_begin(int bucket, Part part = Part::trainable) const;
  /// The same: the end.
  std::int64_t bucket_end(int bucket, Part part = Part::trainable) const;
  /// Returns how many they are.
  std::int64_t bucket_size(int bucket, Part part) const {
    return bucket_end(bucket, part) - bucket_begin(bucket, part);
  }
  /// Returns the elements of a part's flat buffer, padding included.
  std::int64_t flat_size(Part part = Part::trainable) const;
  /// Returns the number of parameters proper (no padding), of both parts or of one.
  std::int64_t count() const;
  /// The same of one part.
  std::int64_t count(Part part) const;
  /// Returns the lowest bucket with something to train, with which backward ends; the last one if none has.
  int lowest_trained() const;

  /// Whether the last bucket is used while the first is (a head that is tied to the embedding).
  bool ends_together = false;

 private:
  std::vector<Parameter> parameters_;
  std::vector<std::array<std::int64_t, both_parts.size()>> ends_;  // of each bucket, by part
};

}  // namespace ringtrain
