#include "reference/model.h"

#include <utility>

#include "reference/attention.h"
#include "reference/rope.h"

namespace ringtrain::reference {

namespace {

/// y += x.
void add(Vector& y, const Vector& x) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[i];
}

/// Returns the gradient tensor of this name, which is zero at first.
Vector& gradient_of(Tensors& gradients, const std::string& name, std::size_t size) {
  Vector& gradient = gradients[name];
  gradient.resize(size);
  return gradient;
}

/// A mask counts tokens of the whole sequence, regardless of the positions in its documents.
Tokens tokens_of(const Row& row) {
  Tokens tokens{{}, row.documents};
  for (std::int64_t t = 0; t < row.size(); ++t) tokens.positions.push_back(t);
  return tokens;
}

}  // namespace

struct Model::Pass {
  Pass(ModelSpec spec, Tensors weights, Rounds rounds)
      : spec_(std::move(spec)),
        weights_(std::move(weights)),
        head_transposed_(transposed(weight(head_name()), spec_.vocab_size, spec_.hidden_size)),
        rounds_(std::move(rounds)) {}

  double forward(const Row& row, Tensors& t) const {
    const std::int64_t T = row.size(), C = spec_.hidden_size;
    Vector x(T * C);
    const double factor = spec_.embedding_factor;
    const Vector& embeddings = weight("model.embed_tokens.weight");
    for (std::int64_t i = 0; i < T * C; ++i) x[i] = factor * embeddings[row.tokens[i / C] * C + i % C];
    if (spec_.positions == Positions::learned) {  // Radford et al., 2019
      const Vector& positions = weight("model.embed_positions.weight");
      for (std::int64_t i = 0; i < T * C; ++i) x[i] += positions[row.positions[i / C] * C + i % C];
    }
    if (spec_.positions == Positions::learned || factor != 1) {
      keep(t, "embedding", std::move(x));
    } else {
      t["embedding"] = std::move(x);  // unscaled rows of the table
    }

    // Each half of a block is added to the residual stream. Models normalize its input (Radford et al., 2019, section
    // 2.3), its output (Walsh et al., "2 OLMo 2 Furious", 2025, section 2.2), or both (Kamath et al., "Gemma 3", 2025,
    // section 2).
    for (std::int64_t layer = 0; layer < spec_.num_hidden_layers(); ++layer) {
      attention_forward(layer_at(layer), row, t);
      feedforward_forward(layer_at(layer), t);
    }

    const Vector& last = t.at(layer_at(spec_.num_hidden_layers()).input);
    keep(t, "final_norm", normed("model.norm", last));
    Vector nll(T);
    for (std::int64_t token = 0; token < T; ++token) {
      if (row.labels[token] < 0) continue;
      Vector logits = logits_of(t, token);
      nll[token] = cross_entropy(logits, row.labels[token], rounds_);
    }
    double sum = 0;
    for (std::int64_t token = 0; token < T; ++token) sum += row.weights[token] * nll[token];
    t["nll"] = std::move(nll);
    return sum;
  }

  void backward(const Row& row, double denominator, Tensors& t, Tensors& gradients) const {
    const std::int64_t C = spec_.hidden_size;
    head_backward(row, denominator, t, gradients);
    for (std::int64_t index = spec_.num_hidden_layers(); index-- > 0;) {
      const Layer layer = layer_at(index);
      // The gradient of the residual stream: first of the layer's output, then between its halves, then of its input.
      // Each half adds its own share to what passes it.
      Vector residual = t.at(layer.gradient("output"));
      residual = feedforward_backward(layer, std::move(residual), t, gradients);
      residual = keep(t, layer.gradient("attention_residual"), std::move(residual));
      residual = attention_backward(layer, row, std::move(residual), t, gradients);
      keep(t, "grad." + layer.input, std::move(residual));
    }
    const Vector dx = over_tokens(t.at("grad.embedding"), C);
    const auto add_rows = [&](const std::string& name, const std::vector<std::int32_t>& rows, double factor) {
      Vector& gradient = gradient_of(gradients, name, weight(name).size());
      for (std::int64_t i = 0; i < row.size() * C; ++i) gradient[rows[i / C] * C + i % C] += factor * dx[i];
    };
    add_rows("model.embed_tokens.weight", row.tokens, spec_.embedding_factor);
    if (spec_.positions == Positions::learned) add_rows("model.embed_positions.weight", row.positions, 1);
  }

  /// Half of a block: its norms, "" if it has none, and the tensors that these read and write.
  struct Half {
    std::string norm_before, norm_after, normed, product;
  };

  struct Layer {
    Layer(std::int64_t which, bool before, bool after)
        : index(which),
          input(which == 0 ? "embedding" : "layer." + std::to_string(which - 1) + ".output"),
          tensor("layer." + std::to_string(which) + "."),
          weight("model.layers." + std::to_string(which) + ".") {
      const auto norm = [&](bool exists, const char* name) { return exists ? weight + name : std::string(); };
      attention = {norm(before, "input_layernorm"), norm(after, "post_attention_layernorm"), tensor + "attention_norm",
                   tensor + "attention_output"};
      feedforward = {norm(before, after ? "pre_feedforward_layernorm" : "post_attention_layernorm"),
                     norm(after, "post_feedforward_layernorm"), tensor + "feedforward_norm",
                     tensor + "feedforward_output"};
    }
    std::string gradient(const char* name) const { return "grad." + tensor + name; }

    std::int64_t index;
    std::string input, tensor, weight;  // the tensor that it reads; the prefix of its names
    Half attention, feedforward;
  };

  Layer layer_at(std::int64_t index) const { return {index, spec_.norm_before, spec_.norm_after}; }

  void attention_forward(const Layer& layer, const Row& row, Tensors& t) const {
    const std::int64_t C = spec_.hidden_size, D = spec_.head_dim;
    const std::int64_t HD = spec_.num_attention_heads * D, GD = spec_.num_key_value_heads * D;
    const Vector& input = t.at(layer.input);
    const Vector& x = half_input(layer.attention, input, t);
    const std::string name = layer.weight + "self_attn.";
    Vector q = keep(t, layer.tensor + "query_projection", project(name + "q_proj", x, C, HD));
    Vector k = keep(t, layer.tensor + "key_projection", project(name + "k_proj", x, C, GD));
    const Vector& v = keep(t, layer.tensor + "value", project(name + "v_proj", x, C, GD));
    // A norm of each head, before the rotation (Yang et al., "Qwen3", 2025, section 2), or of all heads together: it
    // covers as many elements as its weight has.
    if (spec_.query_key_norm != QueryKeyNorm::none) {
      q = normed(name + "q_norm", q);
      k = normed(name + "k_norm", k);
    }
    if (spec_.layers[layer.index].rope) {
      const Rotation turn = rotation_of(layer, row);
      rotate(q, spec_.num_attention_heads, row.positions, turn);
      rotate(k, spec_.num_key_value_heads, row.positions, turn);
    }
    const Vector& query = keep(t, layer.tensor + "query", std::move(q));
    const Vector& key = keep(t, layer.tensor + "key", std::move(k));
    const Tokens tokens = tokens_of(row);
    Forward heads = reference::forward(attention_of(layer), query, key, v, tokens, tokens);
    const Vector& out =
        keep(t, layer.tensor + "attention", summed(std::move(heads.out), row.size(), Summing::one_by_one));
    Vector residual = half_output(layer.attention, project(name + "o_proj", out, HD, C), t);
    add(residual, input);
    keep(t, layer.tensor + "attention_residual", std::move(residual));
  }

  void feedforward_forward(const Layer& layer, Tensors& t) const {
    const std::int64_t C = spec_.hidden_size, F = spec_.intermediate_size;
    const Vector& input = t.at(layer.tensor + "attention_residual");
    const std::string name = layer.weight + "mlp.";
    const Vector& x = half_input(layer.feedforward, input, t);
    const Vector& up = keep(t, layer.tensor + "up", project(name + "up_proj", x, C, F));
    const auto activation = spec_.activation == Activation::gelu ? gelu : silu;
    Vector product(up.size());
    if (spec_.gated_feedforward) {  // SwiGLU and GEGLU: Shazeer, 2020, eq. 5
      const Vector& gate = keep(t, layer.tensor + "gate", project(name + "gate_proj", x, C, F));
      for (std::size_t i = 0; i < up.size(); ++i) product[i] = activation(gate[i]) * up[i];
    } else {
      for (std::size_t i = 0; i < up.size(); ++i) product[i] = activation(up[i]);
    }
    const Vector& activated = keep(t, layer.tensor + "activation", std::move(product));
    Vector output = half_output(layer.feedforward, project(name + "down_proj", activated, F, C), t);
    add(output, input);
    keep(t, layer.tensor + "output", std::move(output));
  }

  void head_backward(const Row& row, double denominator, Tensors& t, Tensors& gradients) const {
    const std::int64_t T = row.size(), C = spec_.hidden_size, V = spec_.vocab_size;
    const Vector& head = weight(head_name());
    Vector dx(T * C);
    for (std::int64_t token = 0; token < T; ++token) {
      if (row.labels[token] < 0) continue;
      Vector dlogits = logits_of(t, token);
      const Vector logits = dlogits;
      cross_entropy(dlogits, row.labels[token], rounds_);
      for (double& d : dlogits) d *= row.weights[token] / denominator;
      for (std::size_t i = 0; spec_.final_softcap > 0 && i < dlogits.size(); ++i) {
        dlogits[i] *= softcap_derivative(logits[i], spec_.final_softcap);
      }
      dlogits = summed(summed(std::move(dlogits), V), 0);
      const Vector x = head_input(t, token);
      Vector dx_token(C);
      linear_backward_input(dx_token, dlogits, head, C, V);
      for (double& each : dx_token) each *= spec_.logit_factor;
      std::copy(dx_token.begin(), dx_token.end(), &dx[token * C]);
      linear_backward_weight(gradient_of(gradients, head_name(), head.size()), nullptr, summed(std::move(dlogits), T),
                             x, C, V);
    }
    const Vector& dnormed = keep(t, "grad.final_norm", summed(std::move(dx), V));
    const std::string last = layer_at(spec_.num_hidden_layers()).input;
    keep(t, "grad." + last, norm_backward("model.norm", dnormed, t.at(last), gradients));
  }

  Vector feedforward_backward(const Layer& layer, Vector residual, Tensors& t, Tensors& gradients) const {
    const std::int64_t T = std::ssize(residual) / spec_.hidden_size, C = spec_.hidden_size, F = spec_.intermediate_size;
    const std::string name = layer.weight + "mlp.";
    const Vector &input = t.at(layer.tensor + "attention_residual"), &up = t.at(layer.tensor + "up");
    const Vector& x = layer.feedforward.norm_before.empty() ? input : t.at(layer.feedforward.normed);
    const Vector doutput = half_output_backward(layer.feedforward, residual, t, gradients);
    Vector dproduct(T * F);
    project_backward(name + "down_proj", dproduct, doutput, t.at(layer.tensor + "activation"), F, C, gradients);
    dproduct = keep(t, layer.gradient("activation"), std::move(dproduct));

    const bool is_gelu = spec_.activation == Activation::gelu;
    const auto activation = is_gelu ? gelu : silu, slope = is_gelu ? gelu_derivative : silu_derivative;
    Vector dx(T * C), dup(up.size());
    if (spec_.gated_feedforward) {
      const Vector& gate = t.at(layer.tensor + "gate");
      Vector dgate(gate.size());
      for (std::size_t i = 0; i < up.size(); ++i) {
        dup[i] = dproduct[i] * activation(gate[i]);
        dgate[i] = dproduct[i] * up[i] * slope(gate[i]);
      }
      project_backward(name + "gate_proj", dx, keep(t, layer.gradient("gate"), std::move(dgate)), x, C, F, gradients);
    } else {
      for (std::size_t i = 0; i < up.size(); ++i) dup[i] = dproduct[i] * slope(up[i]);
    }
    project_backward(name + "up_proj", dx, keep(t, layer.gradient("up"), std::move(dup)), x, C, F, gradients);
    half_input_backward(layer.feedforward, std::move(dx), input, residual, t, gradients);
    return residual;
  }

  Vector attention_backward(const Layer& layer, const Row& row, Vector residual, Tensors& t, Tensors& gradients) const {
    const std::int64_t T = row.size(), C = spec_.hidden_size, D = spec_.head_dim;
    const std::int64_t HD = spec_.num_attention_heads * D, GD = spec_.num_key_value_heads * D;
    const std::string name = layer.weight + "self_attn.";
    const auto tensor = [&](const char* which) -> const Vector& { return t.at(layer.tensor + which); };
    const Vector& input = t.at(layer.input);
    const Vector doutput = half_output_backward(layer.attention, residual, t, gradients);
    Vector dout(T * HD);
    project_backward(name + "o_proj", dout, doutput, tensor("attention"), HD, C, gradients);
    const Vector& dattention = keep(t, layer.gradient("attention"), std::move(dout));

    const Tokens tokens = tokens_of(row);
    Backward heads = reference::backward(attention_of(layer), tensor("query"), tensor("key"), tensor("value"),
                                         tensor("attention"), dattention, tokens, tokens);
    if (spec_.attention_sinks) {
      Vector& gradient = gradient_of(gradients, name + "sinks", heads.dsinks.size());
      add(gradient, summed(std::move(heads.dsinks), T, Summing::one_by_one));
    }
    // These stay sums until a run has rotated them back.
    Vector dq = t[layer.gradient("query")] = summed(std::move(heads.dq), T, Summing::one_by_one);
    Vector dk = t[layer.gradient("key")] = summed(std::move(heads.dk), T, Summing::one_by_one);
    const Vector& dv = t[layer.gradient("value")] = summed(std::move(heads.dv), T, Summing::one_by_one);
    if (spec_.layers[layer.index].rope) {
      const Rotation turn = rotation_of(layer, row);
      rotate(dq, spec_.num_attention_heads, row.positions, turn, /*back=*/true);
      rotate(dk, spec_.num_key_value_heads, row.positions, turn, /*back=*/true);
    }
    if (spec_.query_key_norm != QueryKeyNorm::none) {
      dq = norm_backward(name + "q_norm", dq, tensor("query_projection"), gradients);
      dk = norm_backward(name + "k_norm", dk, tensor("key_projection"), gradients);
    }

    const Vector& x = layer.attention.norm_before.empty() ? input : t.at(layer.attention.normed);
    Vector dx(T * C);
    project_backward(name + "q_proj", dx, keep(t, layer.gradient("query_projection"), std::move(dq)), x, C, HD,
                     gradients);
    project_backward(name + "k_proj", dx, keep(t, layer.gradient("key_projection"), std::move(dk)), x, C, GD,
                     gradients);
    project_backward(name + "v_proj", dx, summed(dv, 0), x, C, GD, gradients);
    half_input_backward(layer.attention, std::move(dx), input, residual, t, gradients);
    return residual;
  }

  const Vector& weight(const std::string& name) const { return weights_.at(name); }
  const Vector* optional(const std::string& name) const {
    const auto found = weights_.find(name);
    return found == weights_.end() ? nullptr : &found->second;
  }

  std::string head_name() const { return spec_.tied_head ? "model.embed_tokens.weight" : "lm_head.weight"; }
  Vector project(const std::string& name, const Vector& x, std::int64_t I, std::int64_t O) const {
    Vector y = linear(x, transposed(weight(name + ".weight"), O, I), O);
    if (const Vector* const bias = optional(name + ".bias")) {
      for (std::size_t i = 0; i < y.size(); ++i) y[i] += (*bias)[i % bias->size()];
    }
    return summed(std::move(y), I);
  }

  /// Adds project()'s gradient to dx, and those of its weights to `gradients`.
  void project_backward(const std::string& name, Vector& dx, const Vector& dy, const Vector& x, std::int64_t I,
                        std::int64_t O, Tensors& gradients) const {
    Vector share(dx.size());
    linear_backward_input(share, dy, weight(name + ".weight"), I, O);
    add(dx, summed(std::move(share), O));
    const Vector* const bias = optional(name + ".bias");
    linear_backward_weight(gradient_of(gradients, name + ".weight", I * O),
                           bias ? &gradient_of(gradients, name + ".bias", O) : nullptr, over_tokens(dy, O), x, I, O);
  }

  /// Returns the input of half a block's computation: the half's input, or its normalized form, which is also kept.
  const Vector& half_input(const Half& half, const Vector& input, Tensors& t) const {
    return half.norm_before.empty() ? input : keep(t, half.normed, normed(half.norm_before, input));
  }

  /// Returns what half a block adds to the residual stream: a product, or its normalized form; then the product is
  /// kept.
  Vector half_output(const Half& half, Vector product, Tensors& t) const {
    if (half.norm_after.empty()) {
      if (spec_.residual_factor == 1) return product;
      for (double& each : product) each *= spec_.residual_factor;
      return summed(summed(std::move(product), 0), 0);  // before and after scaling
    }
    return summed(normed(half.norm_after, keep(t, half.product, std::move(product))), 0);
  }

  /// The gradients of both: this one returns the product's, from that of the residual stream; the next one adds the
  /// input's.
  Vector half_output_backward(const Half& half, const Vector& residual, Tensors& t, Tensors& gradients) const {
    if (half.norm_after.empty()) {
      if (spec_.residual_factor == 1) return residual;
      Vector scaled = residual;
      for (double& each : scaled) each *= spec_.residual_factor;
      return summed(std::move(scaled), 0);
    }
    return keep(t, "grad." + half.product, norm_backward(half.norm_after, residual, t.at(half.product), gradients));
  }

  void half_input_backward(const Half& half, Vector dinput, const Vector& input, Vector& residual, Tensors& t,
                           Tensors& gradients) const {
    if (half.norm_before.empty()) return add(residual, dinput);
    const Vector& dnormed = keep(t, "grad." + half.normed, std::move(dinput));
    add(residual, norm_backward(half.norm_before, dnormed, input, gradients));
  }

  /// Returns a norm's weight, plus 1 if the model counts it from 0.
  Vector norm_weight(const std::string& name) const {
    Vector w = weight(name + ".weight");
    if (spec_.norm.unit_offset) {
      for (double& each : w) each += 1;
    }
    return w;
  }

  Vector normed(const std::string& name, const Vector& x) const {
    const Vector w = norm_weight(name);
    return summed(norm(x, w, optional(name + ".bias"), spec_.norm.eps), std::ssize(w));
  }

  /// Returns the vector that the head multiplies, from a token's final_norm.
  Vector head_input(const Tensors& t, std::int64_t token) const {
    const std::int64_t C = spec_.hidden_size;
    const double* const hidden = &t.at("final_norm")[token * C];
    Vector x(hidden, hidden + C);
    if (spec_.logit_factor == 1) return x;
    for (double& each : x) each *= spec_.logit_factor;
    return summed(std::move(x), 0);
  }

  /// Returns the logits of a token from t's final_norm.
  Vector logits_of(const Tensors& t, std::int64_t token) const {
    Vector logits = summed(linear(head_input(t, token), head_transposed_, spec_.vocab_size), spec_.hidden_size);
    logits = summed(std::move(logits), 0);
    if (spec_.final_softcap == 0) return logits;
    softcap(logits, spec_.final_softcap);
    return summed(std::move(logits), 0);
  }

  /// Returns the gradient of normed() with respect to x; those of its weights add to `gradients`.
  Vector norm_backward(const std::string& name, const Vector& dy, const Vector& x, Tensors& gradients) const {
    const Vector w = norm_weight(name);
    const bool bias = optional(name + ".bias") != nullptr;
    Vector dx(x.size());
    reference::norm_backward(dx, gradient_of(gradients, name + ".weight", w.size()),
                             bias ? &gradient_of(gradients, name + ".bias", w.size()) : nullptr, dy,
                             over_tokens(dy, std::ssize(w)), x, w, spec_.norm.eps);
    return summed(std::move(dx), std::ssize(w));
  }

  /// Returns the attention of a layer, with its sinks if it has them.
  Attention attention_of(const Layer& layer) const {
    const AttentionMask& mask = spec_.layers[layer.index].mask;
    return {.H = spec_.num_attention_heads,
            .G = spec_.num_key_value_heads,
            .D = spec_.head_dim,
            .scale = spec_.attention_scale,
            .causal = mask.causal,
            .window = mask.window,
            .softcap = spec_.attention_softcap,
            .sinks = spec_.attention_sinks ? weight(layer.weight + "self_attn.sinks") : Vector{}};
  }

  Rotation rotation_of(const Layer& layer, const Row& row) const {
    const RopeSpec& rope = spec_.ropes.at(static_cast<std::size_t>(spec_.layers[layer.index].frequencies));
    return rotation(spec_.head_dim, rope.theta, rope.scaling, row.size());
  }

  /// Returns x, whose elements are sums of `terms` products, rounded as a run would.
  Vector summed(Vector x, std::int64_t terms, Summing summing = Summing::in_blocks) const {
    if (rounds_) rounds_(x, terms, summing);
    return x;
  }

  /// Keeps x under this name, rounded as a run stores it, and returns it.
  const Vector& keep(Tensors& t, const std::string& name, Vector x) const { return t[name] = summed(std::move(x), 0); }

  /// Returns dy as the sums over its T tokens read it.
  Vector over_tokens(Vector dy, std::int64_t width) const {
    const std::int64_t tokens = std::ssize(dy) / width;
    return summed(std::move(dy), tokens);
  }

  ModelSpec spec_;
  Tensors weights_;
  Vector head_transposed_;  // [C, V]
  Rounds rounds_;
};

Model::Model(ModelSpec spec, Tensors weights, Rounds rounds)
    : pass_(std::make_unique<const Pass>(std::move(spec), std::move(weights), std::move(rounds))) {}

Model::~Model() = default;

double Model::forward(const Row& row, Tensors& t) const {
  return pass_->forward(row, t);
}

void Model::backward(const Row& row, double denominator, Tensors& t, Tensors& gradients) const {
  pass_->backward(row, denominator, t, gradients);
}

}  // namespace ringtrain::reference
