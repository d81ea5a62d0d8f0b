// The common code of both halves of a block. Each half reads the residual stream, normalized or not, and adds its last
// product to it, normalized or times a factor. It keeps nothing for backward.
#pragma once

#include "framework/dump/tensor_dump.h"
#include "kernels/elementwise.h"
#include "layers/activations.h"
#include "layers/linear.h"
#include "layers/norm.h"

namespace ringtrain {

class BlockHalf {
 protected:
  /// A dump's names for the norm's output, and for the product that is normalized.
  struct Names {
    const char *norm, *output;
  };
  BlockHalf(const ModelSpec& spec, ParameterStore& parameters, int layer, const Names& names, const NormIds& norm,
            const LinearIds& output, const NormIds& output_norm, const LoraWorkspace& lora)
      : layer_(layer),
        names_(names),
        norm_(parameters, norm, spec.norm),
        output_norm_(parameters, output_norm, spec.norm),
        output_(parameters, output, &lora),
        factor_(spec.residual_factor) {}

  /// Fills t.normed and its statistics, if there is a norm.
  void normalize(Stream& stream, const HalfInput& t) const {
    if (!norm_.exists()) return;
    norm_.forward(stream, t.normed, t.statistics, t.input);
    dump_tensor(stream, names_.norm, t.normed, t.first_row);
  }
  /// Returns what the projections read: the norm's output, or the input if there is no norm.
  const TensorView& input_of(const HalfInput& t) const { return norm_.exists() ? t.normed : t.input; }
  /// Returns the tensor that accumulates its gradient: without a norm, the input is the residual stream itself.
  TensorView input_gradient(const TensorView& residual_gradient, const TensorView& scratch) const {
    return norm_.exists() ? scratch : residual_gradient;
  }
  /// Adds what input_gradient() holds to the gradient of the residual stream, through the norm.
  void input_backward(Stream& stream, const HalfInput& t, const TensorView& residual_gradient,
                      const TensorView& scratch) const {
    if (!norm_.exists()) return;
    dump_gradient(stream, names_.norm, scratch, t.first_row);
    norm_.backward(stream, residual_gradient, scratch, t.input, t.statistics, /*accumulate=*/true);
  }

  /// y[n, C] = t.input + the half's output for x[n, I]. Overwrites t.normed if that output is normalized.
  void add_to_residual(Stream& stream, const HalfInput& t, const TensorView& y, const ConstTensorView& x) const {
    if (output_norm_.exists()) {
      output_.forward(stream, t.normed, x);  // its last reader is done, or it is recomputed
      dump_tensor(stream, names_.output, t.normed, t.first_row);
      output_norm_.forward(stream, y, t.statistics, t.normed);
      add(stream, y, t.input);
    } else if (factor_ != 1) {
      output_.forward(stream, y, x);
      scale(stream, y, factor_);
      add(stream, y, t.input);
    } else {
      output_.forward(stream, y, x, /*residual=*/t.input);
    }
  }
  /// dx[n, I] = the gradient of x, from dy, that of y. Reads x only if that output is normalized. dx may be x.
  /// Overwrites scratch [n, C]. Returns what output_backward_weight() takes, in the memory of dy, scratch, or t.normed.
  TensorView output_backward_input(Stream& stream, const HalfInput& t, const TensorView& dx, const TensorView& dy,
                                   const ConstTensorView& x, const TensorView& scratch) const {
    TensorView product_gradient = dy;
    if (output_norm_.exists()) {
      product_gradient = t.normed;
      output_.forward(stream, scratch, x);
      output_norm_.forward(stream, product_gradient, t.statistics, scratch);  // for its statistics
      output_norm_.backward(stream, product_gradient, dy, scratch, t.statistics, /*accumulate=*/false);
      dump_gradient(stream, names_.output, product_gradient, t.first_row);
    } else if (factor_ != 1) {
      product_gradient = scratch;
      copy(stream, scratch, dy);
      scale(stream, scratch, factor_);
    }
    output_.backward_input(stream, dx, product_gradient, /*accumulate=*/false);
    return product_gradient;
  }
  /// Adds the weights' gradients. Afterwards, t.normed is as normalize() fills it.
  void output_backward_weight(Stream& stream, const HalfInput& t, const TensorView& product_gradient,
                              const ConstTensorView& x) const {
    output_.backward_weight(stream, product_gradient, x);
    if (output_norm_.exists()) normalize(stream, t);  // it was overwritten
  }

  /// Adds a tensor, or its gradient, to the stream's dump, if it has one.
  void dump_tensor(Stream& stream, const char* name, const ConstTensorView& x, std::int64_t first_row = 0) const {
    dump(stream, {.name = name, .layer = layer_, .first_row = first_row}, x);
  }
  void dump_gradient(Stream& stream, const char* name, const ConstTensorView& x, std::int64_t first_row = 0) const {
    dump(stream, {.name = name, .layer = layer_, .gradient = true, .first_row = first_row}, x);
  }

  int layer_;
  Names names_;
  Norm norm_, output_norm_;
  Linear output_;
  double factor_;  // of what is added to the residual stream
};

}  // namespace ringtrain
