#include "data/token_file_writer.h"

#include "data/token_file.h"
#include "data/token_manifest.h"
#include "framework/storage/hash.h"

namespace ringtrain {

namespace {

constexpr std::size_t buffer_tokens = 1 << 16;
// Indices in the list of datasets below.
constexpr std::size_t tokens_dataset = 0, offsets_dataset = 1, weights_dataset = 2;
constexpr const char* hashes_name = "source_hashes";
constexpr const char* document_bytes_name = "document_bytes";

bool hashes_are_a_dataset(const TokenFilePlan& plan) {
  return plan.source_hashes.size() > max_attribute_text;
}

Hdf5Writer create_file(const std::string& path, const TokenFilePlan& plan) {
  const Hdf5Type type = plan.vocab_size <= 65536 ? Hdf5Type::uint16 : Hdf5Type::uint32;
  std::vector<Hdf5Dataset> datasets{{"tokens", type, {plan.tokens}, 0},
                                    {"document_offsets", Hdf5Type::int64, {plan.documents + 1}, 0}};
  if (plan.weights) datasets.push_back({"weights", Hdf5Type::float32, {plan.tokens}, 0});
  if (!plan.document_bytes.empty()) {
    datasets.push_back({document_bytes_name, Hdf5Type::int64, {plan.documents}, 0});
  }
  Hdf5Attributes attributes = plan.attributes;
  if (hashes_are_a_dataset(plan)) {
    datasets.push_back({hashes_name, Hdf5Type::uint8, {static_cast<std::int64_t>(plan.source_hashes.size())}, 0});
  } else if (!plan.source_hashes.empty()) {
    attributes[hashes_name] = plan.source_hashes;
  }
  if (!plan.tokenizer_hash.empty()) attributes["tokenizer_hash"] = plan.tokenizer_hash;
  if (plan.byte_count) attributes["byte_count"] = *plan.byte_count;
  attributes["format_version"] = token_format_version;
  attributes["vocab_size"] = plan.vocab_size;
  attributes["end_of_document"] = std::int64_t{plan.end_of_document};
  attributes["first_validation_document"] = plan.first_validation_document;
  return Hdf5Writer::create(path, std::move(datasets), attributes, ExitCode::usage, Hdf5Destination::empty_file);
}

OutputRules token_file_rules() {
  return {{"a token file", "--output"}, OutputMark::none(), OutputInputs::none("it replaces nothing")};
}

/// A manifest without its token file is left by a process that is killed between the two.
OutputRules manifest_rules() {
  return {{"the manifest of a token file", "--output"},
          OutputMark::begins(token_manifest_head()),
          OutputInputs::none("texts that are read by then")};
}

}  // namespace

void TokenFileWriter::check_output(const std::string& path) {
  ringtrain::check_output(path, token_file_rules(), ExitCode::usage);
  ringtrain::check_output(manifest_path(path), manifest_rules(), ExitCode::usage);
  check_writable(parent_directory(path), ExitCode::usage);
}

TokenFileWriter::TokenFileWriter(const std::string& path, const TokenFilePlan& plan)
    : output_(path, token_file_rules(), ExitCode::usage),
      manifest_(manifest_path(path), manifest_rules(), ExitCode::usage),
      plan_(plan) {
  if (plan_.end_of_document < 0) plan_.end_of_document = last_token(plan.vocab_size);
  ensure(plan.documents >= 1 && plan.tokens >= plan.documents, "a token file holds a document");
  ensure(plan.first_validation_document >= 0 && plan.first_validation_document <= plan.documents,
         "the validation part starts within the documents");
  ensure(plan.document_bytes.empty() || static_cast<std::int64_t>(plan.document_bytes.size()) == plan.documents,
         "the bytes of every document, or of none");
  ensure(plan_.end_of_document < plan.vocab_size, "the end token is one of the vocabulary");
  file_ = create_file(output_.partial(), plan_);
  tokens_.reserve(buffer_tokens);
  offsets_.push_back(0);
}

void TokenFileWriter::put(std::int32_t token, float weight) {
  if (tokens_.size() == buffer_tokens) flush();
  tokens_.push_back(token);
  if (plan_.weights) weights_.push_back(weight);
}

void TokenFileWriter::append(std::span<const std::int32_t> tokens, std::span<const float> weights) {
  ensure(plan_.weights ? weights.size() == tokens.size() : weights.empty(), "a weight for every token, or none at all");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ensure(tokens[i] >= 0 && tokens[i] < plan_.vocab_size, "a token of the vocabulary");
    put(tokens[i], plan_.weights ? weights[i] : 1.0f);
  }
}

void TokenFileWriter::end_document(float weight) {
  put(plan_.end_of_document, weight);
  ++documents_;
  offsets_.push_back(written_ + static_cast<std::int64_t>(tokens_.size()));
}

void TokenFileWriter::flush() {
  const auto count = static_cast<std::int64_t>(tokens_.size());
  ensure(written_ + count <= plan_.tokens, "no more tokens than planned");
  if (file_.datasets()[tokens_dataset].type == Hdf5Type::uint16) {
    narrow_.assign(tokens_.begin(), tokens_.end());
    file_.write(tokens_dataset, written_, narrow_.data(), count);
  } else {
    file_.write(tokens_dataset, written_, tokens_.data(), count);  // not negative: int32 and uint32 have the same bits
  }
  if (plan_.weights) file_.write(weights_dataset, written_, weights_.data(), count);
  written_ += count;
  tokens_.clear();
  weights_.clear();
}

std::string TokenFileWriter::finish() {
  flush();
  ensure(written_ == plan_.tokens && documents_ == plan_.documents, "as many tokens and documents as planned");
  file_.write(offsets_dataset, 0, offsets_.data(), plan_.documents + 1);
  if (!plan_.document_bytes.empty()) {
    file_.write(plan_.weights ? weights_dataset + 1 : weights_dataset, 0, plan_.document_bytes.data(), plan_.documents);
  }
  if (hashes_are_a_dataset(plan_)) {
    file_.write(file_.datasets().size() - 1, 0, plan_.source_hashes.data(),
                static_cast<std::int64_t>(plan_.source_hashes.size()));
  }
  file_.finish();

  TokenManifest manifest;
  manifest.bytes = file_size(output_.partial(), ExitCode::usage);
  manifest.hash = hash_file(output_.partial(), ExitCode::usage);
  manifest.vocab_size = plan_.vocab_size;
  manifest.end_of_document = plan_.end_of_document;
  if (plan_.document_start) {
    manifest.document_start.emplace();
    if (*plan_.document_start >= 0) manifest.document_start->push_back(*plan_.document_start);
  }
  manifest.first_validation_document = plan_.first_validation_document;
  manifest.tokenizer_hash = plan_.tokenizer_hash;
  manifest.byte_count = plan_.byte_count;
  manifest.datasets = file_.datasets();
  // The manifest is published first: if the token file exists, everything does.
  output_.check();
  const bool left_over = path_exists(manifest_.path());
  manifest_.file().write(to_json(manifest));
  manifest_.publish();
  try {
    output_.publish();
  } catch (const Error&) {
    if (!left_over) remove_tree(manifest_.path(), ExitCode::usage);
    throw;
  }
  return manifest.hash;
}

}  // namespace ringtrain
