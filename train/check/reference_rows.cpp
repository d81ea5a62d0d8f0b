#include "train/check/reference_rows.h"

namespace ringtrain {

reference::Row reference_row(const Run& run, std::int64_t step, std::int64_t i) {
  const std::int64_t S = run.config.training.seq_len;
  const Sample sample = run.sampler.sample((step - 1) * run.config.training.global_batch_size + i);
  const TokenFile& file = *run.corpus.files[sample.file];
  const std::int64_t base = sample.window * S;
  const bool documents = run.config.data.packing == Packing::documents;
  std::vector<std::int32_t> tokens(S + 1);  // with the last one's label
  std::vector<float> weights(tokens.size(), 1.0F);
  file.read(base, tokens);
  if (file.has_weights()) file.read_weights(base, weights);

  reference::Row row;
  std::int32_t document = 0, position = 0;
  std::size_t next = 0;  // document of the file, the first that begins behind the token
  while (file.document_offsets()[next] <= base) ++next;
  for (std::int64_t t = 0; t < S; ++t) {
    const bool ends = documents && base + t + 1 == file.document_offsets()[next];
    const bool target = !ends && weights[t + 1] > 0;
    row.tokens.push_back(tokens[t]);
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
