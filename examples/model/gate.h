// A custom model: the transformer with a gated layer after its first block,
//   y = x + silu(x Wg^T) * (x Wu^T),  Wg, Wu [C, C].
#pragma once

#include <ringtrain/train.h>

#include <memory>
#include <vector>

class Gate : public ringtrain::InsertedLayer {
 public:
  explicit Gate(const ringtrain::LayerContext& c)
      : gate_(c.parameters, {.weight = c.ids[0]}), up_(c.parameters, {.weight = c.ids[1]}) {
    const std::int64_t most = ringtrain::Activations::max_batch_tokens(c.shape);
    const auto make = [&](const char* name) {
      return c.allocator.make(ringtrain::Tag::activations, name, c.shape.dtype, {most, c.spec.hidden_size});
    };
    if (c.parameters.has_gradients()) input_ = make("gate input");  // what backward needs
    gates_ = make("gate");
    ups_ = make("gate up");
    product_ = make("gate product");
  }
  void forward(ringtrain::Stream& stream, const ringtrain::DeviceBatch&, const ringtrain::TensorView& x,
               bool training) override {
    if (training) copy_in_order(stream, input_.view().prefix(x.shape), x);
    project(stream, x);
    activation_forward(stream, ringtrain::Activation::silu, of(product_, x), of(gates_, x), of(ups_, x));
    add(stream, x, of(product_, x));
  }
  void backward(ringtrain::Stream& stream, const ringtrain::DeviceBatch&, const ringtrain::TensorView& dy) override {
    const ringtrain::TensorView x = of(input_, dy), gate = of(gates_, dy), up = of(ups_, dy);
    project(stream, x);  // recomputed: cheaper than keeping it
    // Overwrites gate and up with their gradients.
    activation_backward(stream, ringtrain::Activation::silu, gate, up, dy, gate, up);
    gate_.backward_weight(stream, gate, x);
    up_.backward_weight(stream, up, x);
    gate_.backward_input(stream, dy, gate, /*accumulate=*/true);  // dy's own path remains: dx = dy + ...
    up_.backward_input(stream, dy, up, /*accumulate=*/true);
  }
  bool works_by_token() const override { return true; }

 private:
  static ringtrain::TensorView of(const ringtrain::Tensor& t, const ringtrain::TensorView& like) {
    return t.view().prefix(like.shape);
  }
  void project(ringtrain::Stream& stream, const ringtrain::TensorView& x) const {
    gate_.forward(stream, of(gates_, x), x);
    up_.forward(stream, of(ups_, x), x);
  }
  ringtrain::Linear gate_, up_;
  ringtrain::Tensor input_, gates_, ups_, product_;  // [B * T, C]
};

inline ringtrain::ModelDefinition gated_model() {
  return ringtrain::transformer_with("gated", [](const ringtrain::ModelSpec& spec) {
    const auto matrix = [&](const char* name) {
      return ringtrain::Parameter{.name = name, .shape = {spec.hidden_size, spec.hidden_size}, .init_stddev = 0.02};
    };
    ringtrain::LayerInsertion layer;
    layer.behind = 0;
    layer.parameters = {matrix("model.gate.weight"), matrix("model.gate_up.weight")};
    layer.make = [](const ringtrain::LayerContext& context) { return std::make_unique<Gate>(context); };
    return std::vector<ringtrain::LayerInsertion>{layer};
  });
}
