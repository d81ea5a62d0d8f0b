#include "data/prepare.h"

#include <algorithm>
#include <cmath>

#include "data/byte_tokenizer.h"
#include "data/token_file.h"
#include "data/token_file_writer.h"
#include "framework/random.h"
#include "framework/storage/hash.h"
#include "framework/system/signals.h"

namespace ringtrain {

static_assert(end_of_document == end_of_document_token(byte_vocab_size));

namespace {

/// Streams one source into the current document.
void write_source(TokenFileWriter& writer, const Source& source) {
  unsigned char bytes[1 << 15];
  std::int32_t tokens[1 << 15];
  const File file = File::open(source.path, ExitCode::data);
  Hasher hasher;
  for (std::int64_t begin = 0; begin < source.bytes;) {
    throw_if_signalled();
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(source.bytes - begin, sizeof bytes));
    file.read_at(begin, bytes, count);
    hasher.update(bytes, count);
    encode_bytes({bytes, count}, {tokens, count});
    writer.append({tokens, count});
    begin += static_cast<std::int64_t>(count);
  }
  if (hasher.digest() != source.hash) {
    fail(ExitCode::data, "{} changed while it was being read; run prepare again", source.path);
  }
  writer.end_document();
}

}  // namespace

std::int64_t validation_count(std::int64_t documents, double fraction) {
  if (fraction <= 0 || documents < 2) return 0;
  const auto share = static_cast<std::int64_t>(std::llround(fraction * static_cast<double>(documents)));
  return std::clamp<std::int64_t>(share, 1, documents - 1);
}

CorpusSummary prepare_text(const SourceList& list, const PrepareOptions& options, const WriteProgress& progress) {
  CorpusSummary summary;
  summary.documents = static_cast<std::int64_t>(list.sources.size());
  summary.validation_documents = validation_count(summary.documents, options.validation_fraction);
  summary.bytes = list.bytes;
  summary.tokens = list.bytes + summary.documents;

  // The document at place i of the file.
  const Permutation order(list.sources.size(), options.seed, Purpose::document_order, 0);
  const auto source_at = [&](std::int64_t i) -> const Source& {
    return list.sources[order(static_cast<std::uint64_t>(i))];
  };

  std::string hashes;
  for (std::int64_t i = 0; i < summary.documents; ++i) hashes += source_at(i).hash + "\n";
  summary.sources_hash = hash_bytes(hashes);

  TokenFilePlan plan;
  plan.vocab_size = byte_vocab_size;
  plan.tokens = summary.tokens;
  plan.documents = summary.documents;
  plan.first_validation_document = summary.documents - summary.validation_documents;
  plan.attributes = {{"kind", "text"},
                     {"byte_count", summary.bytes},
                     {"sources_hash", summary.sources_hash},
                     {"seed", static_cast<std::int64_t>(options.seed)}};
  plan.source_hashes = std::move(hashes);  // a line a document, in the file's order
  TokenFileWriter writer(options.output, plan);
  std::int64_t written = 0;
  for (std::int64_t i = 0; i < summary.documents; ++i) {
    write_source(writer, source_at(i));
    summary.lengths.push_back(source_at(i).bytes + 1);
    written += summary.lengths.back();
    if (i >= plan.first_validation_document) summary.validation_tokens += summary.lengths.back();
    if (progress) progress(i + 1, written);
  }
  summary.hash = writer.finish();
  return summary;
}

}  // namespace ringtrain
