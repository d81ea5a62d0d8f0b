#include "train/check/reference_inputs.h"

#include <algorithm>
#include <span>
#include <utility>

#include "layers/model_parameters.h"

namespace ringtrain {

namespace {

using reference::Vector;

/// Returns whether a parameter is the second factor of an adapter: the table has A before it.
bool is_second_factor(const Parameter& parameter) {
  return parameter.adapter && parameter.name == lora_names(adapted_weight(parameter.name)).b;
}

/// Calls body(o, k, i) for each product of an element of B [O, r] and one of A [r, I].
template <class Body>
void over_products(const Vector& a, const Vector& b, std::int64_t r, const Body& body) {
  const std::int64_t I = std::ssize(a) / r, O = std::ssize(b) / r;
  for (std::int64_t o = 0; o < O; ++o) {
    for (std::int64_t k = 0; k < r; ++k) {
      for (std::int64_t i = 0; i < I; ++i) body(o * I + i, o * r + k, k * I + i);
    }
  }
}

}  // namespace

reference::Row reference_row(const Run& run, std::int64_t step, std::int64_t i) {
  const std::int64_t S = run.at(step).training.seq_len;
  const Sample sample = run.sample(step, i);
  const TokenFile& file = *run.corpus.files[sample.file];
  const auto [base, held] = run.corpus.window(sample.file, sample.window, S);
  const bool documents = parts_documents(run.config.data.packing);
  // Includes the last token's label, except at the end of a file; missing tokens are filled up, without targets.
  std::vector<std::int32_t> tokens(S + 1, file.end_of_document());
  std::vector<float> weights(tokens.size(), 0.0F);
  const auto there = static_cast<std::size_t>(std::min(held + 1, file.token_count() - base));
  file.read(base, std::span(tokens).first(there));
  std::fill_n(weights.begin(), there, 1.0F);
  if (file.has_weights()) file.read_weights(base, std::span(weights).first(there));

  reference::Row row;
  std::int32_t document = 0, position = 0;
  std::size_t next = 0;  // index of the file's first document that begins after the token
  while (file.document_offsets()[next] <= base) ++next;
  for (std::int64_t t = 0; t < S; ++t) {
    const bool inside = t < held;
    const bool ends =
        documents && inside && (base + t + 1 == file.document_offsets()[next] || (t + 1 == held && held < S));
    const bool target = inside && !ends && weights[t + 1] > 0;
    row.tokens.push_back(inside ? tokens[t] : file.end_of_document());
    row.labels.push_back(target ? tokens[t + 1] : -1);
    row.weights.push_back(target ? static_cast<double>(weights[t + 1]) : 0);
    row.positions.push_back(position++);
    if (documents) row.documents.push_back(document);
    if (!ends) continue;
    ++document;
    ++next;
    position = 0;
  }
  return row;
}

ReferenceAdapters::ReferenceAdapters(double scale, const ParameterTable& table, reference::Tensors& weights)
    : scale_(scale), table_(table) {
  for (const Parameter& parameter : table.all()) {
    if (!parameter.adapter) continue;
    factors_[parameter.name] = std::move(weights.at(parameter.name));
    weights.erase(parameter.name);
    if (!is_second_factor(parameter)) continue;
    const std::string weight = adapted_weight(parameter.name);
    const Vector &a = factors_.at(lora_names(weight).a), &b = factors_.at(parameter.name);
    Vector& w = weights.at(weight);
    over_products(a, b, parameter.shape[1], [&](auto oi, auto ok, auto ki) { w[oi] += scale_ * b[ok] * a[ki]; });
  }
}

reference::Tensors ReferenceAdapters::of_trained(reference::Tensors gradients) const {
  reference::Tensors trained;
  for (const Parameter& parameter : table_.all()) {
    if (parameter.part == Part::frozen) continue;
    if (!parameter.adapter) {
      trained[parameter.name] = gradients.at(parameter.name);
      continue;
    }
    if (!is_second_factor(parameter)) continue;
    const std::string weight = adapted_weight(parameter.name), a_name = lora_names(weight).a;
    const Vector &a = factors_.at(a_name), &b = factors_.at(parameter.name), &dw = gradients.at(weight);
    Vector da(a.size()), db(b.size());
    over_products(a, b, parameter.shape[1], [&](auto oi, auto ok, auto ki) {
      da[ki] += scale_ * b[ok] * dw[oi];
      db[ok] += scale_ * dw[oi] * a[ki];
    });
    trained[a_name] = std::move(da);
    trained[parameter.name] = std::move(db);
  }
  return trained;
}

}  // namespace ringtrain
