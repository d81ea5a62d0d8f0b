#include "data/preparation/prepare.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "data/preparation/text_blocks.h"
#include "data/preparation/token_spill.h"
#include "data/token_file.h"
#include "data/token_file_writer.h"
#include "framework/random.h"
#include "framework/storage/hash.h"
#include "framework/system/signals.h"
#include "framework/thread_pool.h"

namespace ringtrain {

namespace {

constexpr std::size_t batch_bytes = std::size_t{8} << 20, task_bytes = std::size_t{64} << 10;

/// The result of encoding a block.
struct Encoded {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;  // empty: 1 each
  std::int64_t bytes = 0, replaced = 0;
  bool binary = false;
};

/// Tokenizes batches of blocks with all threads, and passes the results on in the blocks' order.
class BatchEncoder {
 public:
  BatchEncoder(const std::vector<Source>& sources, const TextOptions& options)
      : sources_(sources), options_(options), pool_(options.threads) {
    for (int i = 0; i < pool_.workers(); ++i) encoders_.push_back(options.tokenizer->make_encoder(options.special));
  }

  std::vector<Encoded> encode(std::vector<TextBlock>& blocks) {
    // Several small blocks share a task.
    std::vector<std::size_t> first{0};
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      bytes += blocks[i].text.size() + 1;
      if (bytes < task_bytes && i + 1 < blocks.size()) continue;
      first.push_back(i + 1);
      bytes = 0;
    }
    std::vector<Encoded> results(blocks.size());
    pool_.run(static_cast<std::int64_t>(first.size()) - 1, [&](std::int64_t task, int worker) {
      const auto index = static_cast<std::size_t>(task);
      for (std::size_t i = first[index]; i < first[index + 1]; ++i) {
        try {
          results[i] = encode_block(blocks[i], *encoders_[worker]);
        } catch (const Error& error) {
          const std::string line = blocks[i].line > 0 ? fmt::format(":{}", blocks[i].line) : "";
          fail(error.code(), "{}{}: {}", sources_[blocks[i].source].path, line, error.what());
        }
      }
    });
    return results;
  }

 private:
  Encoded encode_block(TextBlock& block, Encoder& encoder) const {
    Encoded result;
    if (block.json) take_texts_of(block);
    result.binary = block.line == 0 && block.text.find('\0') != std::string::npos;
    if (!result.binary) encode_text(block, encoder, result);
    return result;
  }

  /// Replaces a line of JSONL by the texts in it.
  void take_texts_of(TextBlock& block) const {
    LineTexts texts;
    try {
      texts = take_texts(block.text, options_.json);
    } catch (const std::exception& error) {
      block.broken = error.what();
    }
    block.text.resize(texts.bytes);
    block.prompt_bytes = texts.prompt_bytes;
    block.replaced = texts.replaced;
  }

  /// Encodes a block that may begin with a prompt. The prompt and the text after it are tokenized together; each token
  /// belongs to the last of the two that it depends on.
  void encode_text(const TextBlock& block, Encoder& encoder, Encoded& result) const {
    if (block.begins && options_.document_start) result.ids.push_back(*options_.document_start);
    const Preceding preceding = block.begins ? Preceding::nothing : Preceding::text;
    const auto first = std::ssize(result.ids);
    result.replaced = block.replaced + encoder.encode(block.text, result.ids, preceding);
    result.bytes = static_cast<std::int64_t>(block.text.size());
    if (block.prompt_bytes == 0) return;
    std::vector<std::int32_t> prompt;
    encoder.encode(std::string_view(block.text).substr(0, block.prompt_bytes), prompt, preceding);
    const auto learned =
        std::mismatch(result.ids.begin() + first, result.ids.end(), prompt.begin(), prompt.end()).first;
    result.weights.assign(static_cast<std::size_t>(learned - result.ids.begin()), 0);
    result.weights.resize(result.ids.size(), 1);
  }

  const std::vector<Source>& sources_;
  const TextOptions& options_;
  ThreadPool pool_;
  std::vector<std::unique_ptr<Encoder>> encoders_;
};

/// Joins encoded blocks to documents, and writes these to the token file.
class DocumentCollector {
 public:
  DocumentCollector(const SourceList& list, const TextOptions& options, TokenSpill& spill, CorpusSummary& summary)
      : list_(list), options_(options), spill_(spill), summary_(summary) {}

  void add(const TextBlock& block, const Encoded& encoded) {
    const std::string& path = list_.sources[block.source].path;
    if (!block.broken.empty()) {
      if (!options_.skip_broken_lines) {
        fail(ExitCode::data, "{}:{}: {}; correct the line, or leave such lines out with --skip-broken-lines", path,
             block.line, block.broken);
      }
      ++summary_.broken_lines;
      return;
    }
    if (block.begins) binary_ = false;
    binary_ = binary_ || encoded.binary;
    summary_.replaced += encoded.replaced;
    if (!binary_) spill_.append(encoded.ids, encoded.weights, encoded.bytes);
    if (!block.ends) return;
    if (binary_ || spill_.current_bytes() == 0) {
      summary_.binary += binary_;
      summary_.empty_lines += block.line > 0;
      spill_.drop_document();
      return;
    }
    spill_.end_document();
    sources_.push_back(static_cast<std::uint32_t>(block.source));
  }

  /// Counts the documents after the last one was added. Throws Error(data) if there is none.
  void finish(double validation_fraction) {
    summary_.documents = spill_.documents();
    if (summary_.documents == 0) {
      fail(ExitCode::data, "the inputs hold no document (broken lines: {}, lines without text: {}, binary files: {})",
           summary_.broken_lines, summary_.empty_lines, summary_.binary);
    }
    summary_.validation_documents = validation_count(summary_.documents, validation_fraction);
    summary_.tokens = spill_.tokens() + summary_.documents;
    summary_.learned_tokens = summary_.tokens - spill_.weightless_tokens();
  }

  /// Returns the plan of a file with the documents in this order.
  TokenFilePlan plan(const Permutation& order, std::uint64_t seed) {
    TokenFilePlan plan;
    std::set<std::uint32_t> named;  // sources in plan.source_hashes
    for (std::int64_t i = 0; i < summary_.documents; ++i) {
      const auto document = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(i)));
      summary_.bytes += plan.document_bytes.emplace_back(spill_.text_bytes(document));
      const std::uint32_t source = sources_[document];
      if (named.insert(source).second) plan.source_hashes += list_.sources[source].hash + "\n";
    }
    summary_.sources_hash = hash_bytes(plan.source_hashes);
    plan.vocab_size = options_.tokenizer->vocab_size();
    plan.end_of_document = options_.document_end;
    plan.document_start = options_.document_start.value_or(-1);
    plan.tokens = summary_.tokens;
    plan.documents = summary_.documents;
    plan.first_validation_document = summary_.documents - summary_.validation_documents;
    plan.weights = spill_.has_weights();
    plan.tokenizer_hash = options_.tokenizer->identity();
    plan.byte_count = summary_.bytes;
    plan.attributes = {{"kind", "text"},
                       {"tokenizer_kind", std::string(options_.tokenizer->kind())},
                       {"sources_hash", summary_.sources_hash},
                       {"seed", static_cast<std::int64_t>(seed)}};
    return plan;
  }

  /// Writes the documents in this order.
  void write(TokenFileWriter& writer, const Permutation& order, const CopyProgress& progress) {
    std::int64_t written = 0;
    for (std::int64_t i = 0; i < summary_.documents; ++i) {
      throw_if_signalled();
      const auto document = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(i)));
      const std::int64_t length = spill_.length(document) + 1;
      spill_.for_document(document, [&](auto tokens, auto weights) { writer.append(tokens, weights); });
      writer.end_document();
      summary_.lengths.push_back(length);
      if (i >= summary_.documents - summary_.validation_documents) summary_.validation_tokens += length;
      written += length;
      if (progress) progress(written, summary_.tokens);
    }
  }

 private:
  const SourceList& list_;
  const TextOptions& options_;
  TokenSpill& spill_;
  CorpusSummary& summary_;
  std::vector<std::uint32_t> sources_;  // of each document
  bool binary_ = false;                 // the current document contains a NUL byte
};

void tokenize(const SourceList& list, const TextOptions& options, DocumentCollector& collector,
              const ReadProgress& progress) {
  BlockReader reader(list.sources, *options.tokenizer, options.json);
  BatchEncoder encoder(list.sources, options);
  std::vector<TextBlock> blocks;
  for (bool has_next = true; has_next;) {
    blocks.clear();
    for (std::size_t bytes = 0; bytes < batch_bytes;) {
      throw_if_signalled();
      std::optional<TextBlock> block = reader.next();
      has_next = block.has_value();
      if (!has_next) break;
      bytes += block->text.size() + sizeof(TextBlock);
      blocks.push_back(std::move(*block));
    }
    if (blocks.empty()) break;
    const std::vector<Encoded> results = encoder.encode(blocks);
    for (std::size_t i = 0; i < blocks.size(); ++i) collector.add(blocks[i], results[i]);
    if (progress) progress(reader.bytes_read());
  }
}

}  // namespace

std::int64_t validation_count(std::int64_t documents, double fraction) {
  if (fraction <= 0 || documents < 2) return 0;
  const auto share = static_cast<std::int64_t>(std::llround(fraction * static_cast<double>(documents)));
  return std::clamp<std::int64_t>(share, 1, documents - 1);
}

CorpusSummary prepare_text(const SourceList& list, const PrepareOptions& options, const TextOptions& text,
                           const ReadProgress& reading, const CopyProgress& writing) {
  ensure(text.tokenizer != nullptr, "a tokenizer");
  TokenFileWriter::check_output(options.output);
  CorpusSummary summary;
  TokenSpill spill(options.output, text.tokenizer->vocab_size());
  DocumentCollector collector(list, text, spill, summary);
  tokenize(list, text, collector, reading);
  collector.finish(options.validation_fraction);
  const Permutation order(static_cast<std::uint64_t>(summary.documents), options.seed, Purpose::document_order, 0);
  TokenFileWriter writer(options.output, collector.plan(order, options.seed));
  collector.write(writer, order, writing);
  summary.hash = writer.finish();
  return summary;
}

}  // namespace ringtrain
