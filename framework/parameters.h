// The parameter table: every weight of a model by global name, in one fixed order, grouped into buckets. A bucket is
// the unit in which a layer asks for its weights and in which gradients are reduced. Weights and gradients of a bucket
// stand side by side in one flat buffer each, every parameter starting at a multiple of 16 elements (padding stays
// zero).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/allocator.h"
#include "framework/tensor.h"

namespace ringtrain {

struct Parameter {
  std::string name;  // e.g. "model.layers.0.self_attn.q_proj.weight"
  Shape shape;
  int bucket = 0;         // 0: embedding, 1..L: blocks, L+1: final norm and head
  bool decay = true;      // false for norms and biases
  double init_value = 0;  // where init_stddev is 0
  double init_stddev = 0;
  std::int64_t offset = 0;  // elements from the start of the flat buffer; set by ParameterTable
};

class ParameterTable {
 public:
  /// Appends a parameter; buckets must not decrease. Returns its id.
  int add(Parameter parameter);
  const std::vector<Parameter>& all() const { return parameters_; }
  const Parameter& operator[](int id) const { return parameters_[id]; }
  int buckets() const;
  /// Returns elements [begin, end) of the flat buffer that bucket holds, padding included.
  std::int64_t bucket_begin(int bucket) const;
  std::int64_t bucket_end(int bucket) const;
  /// Returns the elements of the flat buffer, padding included.
  std::int64_t flat_size() const { return size_; }
  /// Returns the number of parameters proper (no padding).
  std::int64_t count() const;

 private:
  std::vector<Parameter> parameters_;
  std::int64_t size_ = 0;
};

/// Storage of weights and, if asked, gradients (in the accumulator of the weights' dtype) of one rank. Every rank holds
/// all of them. A layer acquires a bucket's weights before use and releases them after.
class Parameters {
 public:
  Parameters(Allocator& allocator, const ParameterTable& table, DType dtype, bool with_gradients);
  const ParameterTable& table() const { return *table_; }
  bool has_gradients() const { return !gradients_.empty(); }

  /// Makes a bucket's weights usable until release(bucket).
  void acquire(int bucket);
  void release(int bucket);
  /// Forgets all gradients, in no time, as zero_grad(set_to_none=True) does: what a buffer holds is of an earlier step
  /// until backward writes it. (Without a call, gradients are there, to be added to.)
  void forget_gradients() { has_gradient_.assign(table_->all().size(), false); }
  /// Returns whether id's gradient holds a term of this step.
  bool has_gradient(int id) const { return has_gradient_[id]; }
  /// Says that backward writes id's gradient now. Returns whether it adds: false for the first write of a step.
  bool begin_write(int id);
  TensorView weight(int id) const;
  TensorView gradient(int id) const;
  TensorView bucket_weights(int bucket) const;    // flat
  TensorView bucket_gradients(int bucket) const;  // flat
  TensorView all_gradients() const { return gradients_; }
  TensorView all_weights() const { return weights_; }

 private:
  const ParameterTable* table_;
  Tensor weights_, gradients_;
  std::vector<bool> has_gradient_;  // of each parameter
};

/// Told by a model's backward, once per bucket and step, when the last micro-batch's gradients of that bucket are
/// complete, always in the same order (head, blocks from last to first, embedding).
class GradientObserver {
 public:
  virtual ~GradientObserver() = default;
  virtual void bucket_complete(int bucket) = 0;
};

}  // namespace ringtrain
