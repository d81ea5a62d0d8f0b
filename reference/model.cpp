#include "reference/model.h"

#include <cmath>
#include <utility>

#include "reference/attention.h"

namespace ringtrain::reference {

namespace {

/// y += x.
void add(Vector& y, const Vector& x) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[i];
}

/// Returns the tensor of gradients of this name, zero at first.
Vector& gradient_of(Tensors& gradients, const std::string& name, std::size_t size) {
  Vector& gradient = gradients[name];
  gradient.resize(size);
  return gradient;
}

Attention attention_of(const ModelSpec& spec, std::int64_t layer) {
  const AttentionMask& mask = spec.layers[layer].mask;
  return {.H = spec.num_attention_heads,
          .G = spec.num_key_value_heads,
          .D = spec.head_dim,
          .scale = 1 / std::sqrt(static_cast<double>(spec.head_dim)),
          .causal = mask.causal,
          .window = mask.window};
}

/// A mask counts tokens of the whole sequence, whatever positions its documents have.
Tokens tokens_of(const Row& row) {
  Tokens tokens{{}, row.documents};
  for (std::int64_t t = 0; t < row.size(); ++t) tokens.positions.push_back(t);
  return tokens;
}

}  // namespace

struct Model::Layer {
  explicit Layer(std::int64_t which)
      : index(which),
        input(which == 0 ? "embedding" : "layer." + std::to_string(which - 1) + ".output"),
        tensor("layer." + std::to_string(which) + "."),
        weight("model.layers." + std::to_string(which) + ".") {}
  std::string gradient(const char* name) const { return "grad." + tensor + name; }

  std::int64_t index;
  std::string input, tensor, weight;  // the tensor that it reads; what names begin with
};

Model::Model(ModelSpec spec, Tensors weights, Rounds rounds)
    : spec_(std::move(spec)),
      weights_(std::move(weights)),
      head_transposed_(transposed(weight(head_name()), spec_.vocab_size, spec_.hidden_size)),
      rounds_(std::move(rounds)) {}

const Vector* Model::optional(const std::string& name) const {
  const auto found = weights_.find(name);
  return found == weights_.end() ? nullptr : &found->second;
}

Vector Model::summed(Vector x, std::int64_t terms) const {
  if (rounds_) rounds_(x, terms);
  return x;
}

const Vector& Model::keep(Tensors& t, const std::string& name, Vector x) const {
  return t[name] = summed(std::move(x), 0);
}

Vector Model::over_tokens(Vector dy, std::int64_t width) const {
  const std::int64_t tokens = std::ssize(dy) / width;
  return summed(std::move(dy), tokens);
}

Vector Model::project(const std::string& name, const Vector& x, std::int64_t I, std::int64_t O) const {
  Vector y = linear(x, transposed(weight(name + ".weight"), O, I), O);
  if (const Vector* const bias = optional(name + ".bias")) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += (*bias)[i % bias->size()];
  }
  return summed(std::move(y), I);
}

void Model::project_backward(const std::string& name, Vector& dx, const Vector& dy, const Vector& x, std::int64_t I,
                             std::int64_t O, Tensors& gradients) const {
  Vector share(dx.size());
  linear_backward_input(share, dy, weight(name + ".weight"), I, O);
  add(dx, summed(std::move(share), O));
  const Vector* const bias = optional(name + ".bias");
  linear_backward_weight(gradient_of(gradients, name + ".weight", I * O),
                         bias ? &gradient_of(gradients, name + ".bias", O) : nullptr, over_tokens(dy, O), x, I, O);
}

Vector Model::normed(const std::string& name, const Vector& x) const {
  const Vector& w = weight(name + ".weight");
  return summed(norm(x, w, optional(name + ".bias"), spec_.norm_eps), std::ssize(w));
}

Vector Model::norm_backward(const std::string& name, const Vector& dy, const Vector& x, Tensors& gradients) const {
  const Vector& w = weight(name + ".weight");
  const bool bias = optional(name + ".bias") != nullptr;
  Vector dx(x.size());
  reference::norm_backward(dx, gradient_of(gradients, name + ".weight", w.size()),
                           bias ? &gradient_of(gradients, name + ".bias", w.size()) : nullptr, dy,
                           over_tokens(dy, std::ssize(w)), x, w, spec_.norm_eps);
  return summed(std::move(dx), std::ssize(w));
}

Rotation Model::rotation_of(const Row& row) const {
  return rotation(spec_.head_dim, spec_.rope_theta, spec_.rope_scaling, row.size());
}

double Model::forward(const Row& row, Tensors& t) const {
  const std::int64_t T = row.size(), C = spec_.hidden_size;
  Vector x(T * C);
  for (std::int64_t i = 0; i < T * C; ++i) {
    x[i] = weight("model.embed_tokens.weight")[row.tokens[i / C] * C + i % C];
    if (spec_.positions == Positions::learned) {  // Radford et al., 2019
      x[i] += weight("model.embed_positions.weight")[row.positions[i / C] * C + i % C];
    }
  }
  if (spec_.positions == Positions::learned) {
    keep(t, "embedding", std::move(x));
  } else {
    t["embedding"] = std::move(x);  // rows of the table as they are
  }

  // Each half of a block is normed first and added to the residual stream (Radford et al., 2019, section 2.3).
  for (std::int64_t layer = 0; layer < spec_.num_hidden_layers(); ++layer) {
    attention_forward(Layer(layer), row, t);
    feedforward_forward(Layer(layer), t);
  }

  const Vector& last = t.at(Layer(spec_.num_hidden_layers()).input);
  keep(t, "final_norm", normed("model.norm", last));
  Vector nll(T);
  for (std::int64_t token = 0; token < T; ++token) {
    if (row.labels[token] < 0) continue;
    Vector logits = logits_of(t, token);
    nll[token] = cross_entropy(logits, row.labels[token]);
  }
  double sum = 0;
  for (std::int64_t token = 0; token < T; ++token) sum += row.weights[token] * nll[token];
  t["nll"] = std::move(nll);
  return sum;
}

Vector Model::logits_of(const Tensors& t, std::int64_t token) const {
  const std::int64_t C = spec_.hidden_size;
  const double* const hidden = &t.at("final_norm")[token * C];
  Vector logits = linear(Vector(hidden, hidden + C), head_transposed_, spec_.vocab_size);
  return summed(summed(std::move(logits), C), 0);
}

void Model::attention_forward(const Layer& layer, const Row& row, Tensors& t) const {
  const std::int64_t C = spec_.hidden_size, D = spec_.head_dim;
  const std::int64_t HD = spec_.num_attention_heads * D, GD = spec_.num_key_value_heads * D;
  const Vector& input = t.at(layer.input);
  const Vector& x = keep(t, layer.tensor + "attention_norm", normed(layer.weight + "input_layernorm", input));
  const std::string name = layer.weight + "self_attn.";
  Vector q = keep(t, layer.tensor + "query_projection", project(name + "q_proj", x, C, HD));
  Vector k = keep(t, layer.tensor + "key_projection", project(name + "k_proj", x, C, GD));
  const Vector& v = keep(t, layer.tensor + "value", project(name + "v_proj", x, C, GD));
  if (spec_.query_key_norm) {  // of each head, before it turns (Yang et al., "Qwen3", 2025, section 2)
    q = normed(name + "q_norm", q);
    k = normed(name + "k_norm", k);
  }
  if (spec_.layers[layer.index].rope) {
    const Rotation turn = rotation_of(row);
    rotate(q, spec_.num_attention_heads, row.positions, turn);
    rotate(k, spec_.num_key_value_heads, row.positions, turn);
  }
  const Vector& query = keep(t, layer.tensor + "query", std::move(q));
  const Vector& key = keep(t, layer.tensor + "key", std::move(k));
  const Tokens tokens = tokens_of(row);
  Forward heads = reference::forward(attention_of(spec_, layer.index), query, key, v, tokens, tokens);
  const Vector& out = keep(t, layer.tensor + "attention", summed(std::move(heads.out), row.size()));
  Vector residual = project(name + "o_proj", out, HD, C);
  add(residual, input);
  keep(t, layer.tensor + "attention_residual", std::move(residual));
}

void Model::feedforward_forward(const Layer& layer, Tensors& t) const {
  const std::int64_t C = spec_.hidden_size, F = spec_.intermediate_size;
  const Vector& input = t.at(layer.tensor + "attention_residual");
  const std::string name = layer.weight + "mlp.";
  const Vector& x =
      keep(t, layer.tensor + "feedforward_norm", normed(layer.weight + "post_attention_layernorm", input));
  const Vector& up = keep(t, layer.tensor + "up", project(name + "up_proj", x, C, F));
  Vector product(up.size());
  if (spec_.gated_feedforward) {  // SwiGLU: Shazeer, 2020, eq. 5
    const Vector& gate = keep(t, layer.tensor + "gate", project(name + "gate_proj", x, C, F));
    for (std::size_t i = 0; i < up.size(); ++i) product[i] = silu(gate[i]) * up[i];
  } else {
    for (std::size_t i = 0; i < up.size(); ++i) product[i] = gelu(up[i]);
  }
  Vector output = project(name + "down_proj", keep(t, layer.tensor + "activation", std::move(product)), F, C);
  add(output, input);
  keep(t, layer.tensor + "output", std::move(output));
}

void Model::backward(const Row& row, double denominator, Tensors& t, Tensors& gradients) const {
  const std::int64_t C = spec_.hidden_size;
  head_backward(row, denominator, t, gradients);
  for (std::int64_t index = spec_.num_hidden_layers(); index-- > 0;) {
    const Layer layer(index);
    // The gradient of the residual stream: of the layer's output, then of what lies between its halves, then of its
    // input. Each half adds its own share to what passes it by.
    Vector residual = t.at(layer.gradient("output"));
    residual = feedforward_backward(layer, std::move(residual), t, gradients);
    residual = keep(t, layer.gradient("attention_residual"), std::move(residual));
    residual = attention_backward(layer, row, std::move(residual), t, gradients);
    keep(t, "grad." + layer.input, std::move(residual));
  }
  const Vector dx = over_tokens(t.at("grad.embedding"), C);
  const auto add_rows = [&](const std::string& name, const std::vector<std::int32_t>& rows) {
    Vector& gradient = gradient_of(gradients, name, weight(name).size());
    for (std::int64_t i = 0; i < row.size() * C; ++i) gradient[rows[i / C] * C + i % C] += dx[i];
  };
  add_rows("model.embed_tokens.weight", row.tokens);
  if (spec_.positions == Positions::learned) add_rows("model.embed_positions.weight", row.positions);
}

void Model::head_backward(const Row& row, double denominator, Tensors& t, Tensors& gradients) const {
  const std::int64_t T = row.size(), C = spec_.hidden_size, V = spec_.vocab_size;
  const Vector& final_norm = t.at("final_norm");
  const Vector& head = weight(head_name());
  Vector dx(T * C);
  for (std::int64_t token = 0; token < T; ++token) {
    if (row.labels[token] < 0) continue;
    Vector dlogits = logits_of(t, token);
    cross_entropy(dlogits, row.labels[token]);
    for (double& d : dlogits) d *= row.weights[token] / denominator;
    dlogits = summed(summed(std::move(dlogits), V), 0);
    const Vector x(&final_norm[token * C], &final_norm[token * C] + C);
    Vector own(C);
    linear_backward_input(own, dlogits, head, C, V);
    std::copy(own.begin(), own.end(), &dx[token * C]);
    linear_backward_weight(gradient_of(gradients, head_name(), head.size()), nullptr, summed(std::move(dlogits), T), x,
                           C, V);
  }
  const Vector& dnormed = keep(t, "grad.final_norm", summed(std::move(dx), V));
  const std::string last = Layer(spec_.num_hidden_layers()).input;
  keep(t, "grad." + last, norm_backward("model.norm", dnormed, t.at(last), gradients));
}

Vector Model::feedforward_backward(const Layer& layer, Vector residual, Tensors& t, Tensors& gradients) const {
  const std::int64_t T = std::ssize(residual) / spec_.hidden_size, C = spec_.hidden_size, F = spec_.intermediate_size;
  const std::string name = layer.weight + "mlp.";
  const Vector &x = t.at(layer.tensor + "feedforward_norm"), &up = t.at(layer.tensor + "up");
  Vector dproduct(T * F);
  project_backward(name + "down_proj", dproduct, residual, t.at(layer.tensor + "activation"), F, C, gradients);
  dproduct = keep(t, layer.gradient("activation"), std::move(dproduct));

  Vector dx(T * C), dup(up.size());
  if (spec_.gated_feedforward) {
    const Vector& gate = t.at(layer.tensor + "gate");
    Vector dgate(gate.size());
    for (std::size_t i = 0; i < up.size(); ++i) {
      dup[i] = dproduct[i] * silu(gate[i]);
      dgate[i] = dproduct[i] * up[i] * silu_derivative(gate[i]);
    }
    project_backward(name + "gate_proj", dx, keep(t, layer.gradient("gate"), std::move(dgate)), x, C, F, gradients);
  } else {
    for (std::size_t i = 0; i < up.size(); ++i) dup[i] = dproduct[i] * gelu_derivative(up[i]);
  }
  project_backward(name + "up_proj", dx, keep(t, layer.gradient("up"), std::move(dup)), x, C, F, gradients);
  const Vector& dnormed = keep(t, layer.gradient("feedforward_norm"), std::move(dx));
  add(residual, norm_backward(layer.weight + "post_attention_layernorm", dnormed,
                              t.at(layer.tensor + "attention_residual"), gradients));
  return residual;
}

Vector Model::attention_backward(const Layer& layer, const Row& row, Vector residual, Tensors& t,
                                 Tensors& gradients) const {
  const std::int64_t T = row.size(), C = spec_.hidden_size, D = spec_.head_dim;
  const std::int64_t HD = spec_.num_attention_heads * D, GD = spec_.num_key_value_heads * D;
  const std::string name = layer.weight + "self_attn.";
  const auto tensor = [&](const char* which) -> const Vector& { return t.at(layer.tensor + which); };
  Vector dout(T * HD);
  project_backward(name + "o_proj", dout, residual, tensor("attention"), HD, C, gradients);
  const Vector& dattention = keep(t, layer.gradient("attention"), std::move(dout));

  const Tokens tokens = tokens_of(row);
  Backward heads = reference::backward(attention_of(spec_, layer.index), tensor("query"), tensor("key"),
                                       tensor("value"), tensor("attention"), dattention, tokens, tokens);
  // These stay sums until a run has turned them back.
  Vector dq = t[layer.gradient("query")] = summed(std::move(heads.dq), T);
  Vector dk = t[layer.gradient("key")] = summed(std::move(heads.dk), T);
  const Vector& dv = t[layer.gradient("value")] = summed(std::move(heads.dv), T);
  if (spec_.layers[layer.index].rope) {
    const Rotation turn = rotation_of(row);
    rotate(dq, spec_.num_attention_heads, row.positions, turn, /*back=*/true);
    rotate(dk, spec_.num_key_value_heads, row.positions, turn, /*back=*/true);
  }
  if (spec_.query_key_norm) {
    dq = norm_backward(name + "q_norm", dq, tensor("query_projection"), gradients);
    dk = norm_backward(name + "k_norm", dk, tensor("key_projection"), gradients);
  }

  const Vector& x = tensor("attention_norm");
  Vector dx(T * C);
  project_backward(name + "q_proj", dx, keep(t, layer.gradient("query_projection"), std::move(dq)), x, C, HD,
                   gradients);
  project_backward(name + "k_proj", dx, keep(t, layer.gradient("key_projection"), std::move(dk)), x, C, GD, gradients);
  project_backward(name + "v_proj", dx, summed(dv, 0), x, C, GD, gradients);
  const Vector& dnormed = keep(t, layer.gradient("attention_norm"), std::move(dx));
  add(residual, norm_backward(layer.weight + "input_layernorm", dnormed, t.at(layer.input), gradients));
  return residual;
}

}  // namespace ringtrain::reference
