#include "train/check/reference_rows.h"

#include <algorithm>
#include <span>

namespace ringtrain {

reference::Row reference_row(const Run& run, std::int64_t step, std::int64_t i) {
  const std::int64_t S = run.at(step).training.seq_len;
  const Sample sample = run.order.sample(step, i);
  const TokenFile& file = *run.corpus.files[sample.file];
  const auto [base, held] = run.corpus.window(sample.file, sample.window, S);
  const bool documents = parts_documents(run.config.data.packing);
  // With the last one's label, but for the last token of a file; what is not held is filled up, without targets.
  std::vector<std::int32_t> tokens(S + 1, file.end_of_document());
  std::vector<float> weights(tokens.size(), 0.0F);
  const auto there = static_cast<std::size_t>(std::min(held + 1, file.token_count() - base));
  file.read(base, std::span(tokens).first(there));
  std::fill_n(weights.begin(), there, 1.0F);
  if (file.has_weights()) file.read_weights(base, std::span(weights).first(there));

  reference::Row row;
  std::int32_t document = 0, position = 0;
  std::size_t next = 0;  // document of the file, the first that begins behind the token
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

}  // namespace ringtrain
