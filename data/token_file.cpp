// Opening a token file compares its size and hash with the manifest, then checks the rules for its datasets and their
// content. Reading uses pread at the tokens' offset, compares the bytes with what was hashed, and widens them in a
// small buffer on the stack.
#include "data/token_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "data/block_checksums.h"
#include "data/token_manifest.h"
#include "framework/storage/files.h"
#include "framework/storage/hdf5_datasets.h"

namespace ringtrain {

namespace {

constexpr std::int64_t slice_tokens = 8192;

class Hdf5TokenFile final : public TokenFile {
 public:
  /// manifest and checksums belong to this file.
  Hdf5TokenFile(File file, TokenManifest manifest, std::unique_ptr<const BlockChecksums> checksums)
      : path_(file.path()), manifest_(std::move(manifest)), checksums_(std::move(checksums)), file_(std::move(file)) {}

  const std::string& path() const override { return path_; }
  std::int64_t vocab_size() const override { return manifest_.vocab_size; }
  std::int32_t end_of_document() const override { return end_of_document_; }
  std::optional<std::int32_t> document_start() const override { return document_start_; }
  const std::string& tokenizer_hash() const override { return manifest_.tokenizer_hash; }
  double bytes_per_token(std::int64_t document) const override;
  std::int64_t token_count() const override { return tokens_->count(); }
  bool has_weights() const override { return weights_ != nullptr; }
  std::span<const std::int64_t> document_offsets() const override { return offsets_; }
  std::int64_t first_validation_document() const override { return manifest_.first_validation_document; }
  const std::string& hash() const override { return checksums_->hash(); }

  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    if (tokens_->type == Hdf5Type::uint16) {
      widen(begin, out);
    } else {
      read_elements(*tokens_, begin, out.data(), std::ssize(out));  // an id beyond int32 becomes negative
    }
  }

  void read_weights(std::int64_t begin, std::span<float> out) const override {
    if (weights_) {
      read_elements(*weights_, begin, out.data(), static_cast<std::int64_t>(out.size()));
    } else {
      std::ranges::fill(out, 1.0f);
    }
  }

  void check_layout();

 private:
  /// Reads elements [begin, begin + count) of a dataset into memory of its type.
  void read_elements(const Hdf5Dataset& dataset, std::int64_t begin, void* data, std::int64_t count) const {
    ensure(begin >= 0 && count >= 0 && count <= dataset.count() - begin, "a slice within the dataset");
    const auto element = static_cast<std::int64_t>(size_of(dataset.type));
    checksums_->read(file_, dataset.offset + begin * element, data, static_cast<std::size_t>(count * element));
  }
  void widen(std::int64_t begin, std::span<std::int32_t> out) const {
    std::uint16_t slice[slice_tokens];
    for (std::int64_t done = 0; done < std::ssize(out);) {
      const std::int64_t some = std::min(slice_tokens, std::ssize(out) - done);
      read_elements(*tokens_, begin + done, slice, some);
      std::copy_n(slice, some, out.begin() + done);
      done += some;
    }
  }
  const Hdf5Dataset* dataset(const char* name, std::initializer_list<Hdf5Type> types) const;
  void check_numbers();
  void read_document_bytes();

  std::string path_;
  TokenManifest manifest_;
  std::unique_ptr<const BlockChecksums> checksums_;
  File file_;
  const Hdf5Dataset* tokens_ = nullptr;
  const Hdf5Dataset* weights_ = nullptr;
  std::int32_t end_of_document_ = 0;
  std::optional<std::int32_t> document_start_;
  std::vector<std::int64_t> document_bytes_;  // [documents]; empty: unknown
  std::vector<std::int64_t> offsets_;
};

const Hdf5Dataset* Hdf5TokenFile::dataset(const char* name, std::initializer_list<Hdf5Type> types) const {
  const Hdf5Dataset* found = find_dataset(manifest_.datasets, name);
  if (!found) return nullptr;
  if (found->dims.size() != 1) {
    fail(ExitCode::data, "{}: dataset {} has {} dimensions, not one", path_, name, found->dims.size());
  }
  if (std::ranges::find(types, found->type) == types.end()) {
    fail(ExitCode::data, "{}: dataset {} has the type {}, which is not allowed for it", path_, name,
         name_of(found->type));
  }
  return found;
}

void Hdf5TokenFile::check_layout() {
  tokens_ = dataset("tokens", {Hdf5Type::uint16, Hdf5Type::uint32});
  weights_ = dataset("weights", {Hdf5Type::float32});
  const Hdf5Dataset* offsets = dataset("document_offsets", {Hdf5Type::int64});
  if (!tokens_ || !offsets) {
    fail(ExitCode::data, "{} is not a token file: it has no dataset {}", path_,
         tokens_ ? "document_offsets" : "tokens");
  }
  if (weights_ && weights_->count() != tokens_->count()) {
    fail(ExitCode::data, "{} has {} weights for {} tokens", path_, weights_->count(), tokens_->count());
  }
  if (tokens_->count() == 0 || offsets->count() < 2) fail(ExitCode::data, "{} holds no token", path_);
  check_numbers();
  offsets_.resize(offsets->count());
  read_elements(*offsets, 0, offsets_.data(), offsets->count());
  read_document_bytes();
}

void Hdf5TokenFile::check_numbers() {
  const std::int64_t vocab_size = manifest_.vocab_size;
  if (vocab_size < 2 || vocab_size > INT32_MAX) {
    fail(ExitCode::data, "{} says its vocabulary has {} tokens; it must have 2 to {}", path_, vocab_size, INT32_MAX);
  }
  const std::int64_t end = manifest_.end_of_document.value_or(last_token(vocab_size));
  if (end >= vocab_size) {
    fail(ExitCode::data, "{} says that token {} ends a document, but its vocabulary has {} tokens", path_, end,
         vocab_size);
  }
  end_of_document_ = static_cast<std::int32_t>(end);
  if (!manifest_.document_start) return;
  const std::vector<std::int64_t>& start = *manifest_.document_start;
  if (start.size() > 1 || (start.size() == 1 && start[0] >= vocab_size)) {
    fail(ExitCode::data, "{} says that document_start is {}: it must be [], or one token of its vocabulary of {}",
         path_, fmt::join(start, ", "), vocab_size);
  }
  document_start_ = start.empty() ? -1 : static_cast<std::int32_t>(start[0]);
}

void Hdf5TokenFile::read_document_bytes() {
  const Hdf5Dataset* bytes = dataset("document_bytes", {Hdf5Type::int64});
  if (!bytes) return;
  if (bytes->count() + 1 != std::ssize(offsets_)) {
    fail(ExitCode::data, "{}: dataset document_bytes must have an int64 for each document", path_);
  }
  document_bytes_.resize(bytes->count());
  read_elements(*bytes, 0, document_bytes_.data(), bytes->count());
  for (const std::int64_t count : document_bytes_) {
    if (count < 0) fail(ExitCode::data, "{}: dataset document_bytes contains a negative size, {}", path_, count);
  }
}

double Hdf5TokenFile::bytes_per_token(std::int64_t document) const {
  const auto mean = [](std::int64_t bytes, std::int64_t tokens) {
    return bytes > 0 && tokens > 0 ? static_cast<double>(bytes) / static_cast<double>(tokens) : 0.0;
  };
  const std::int64_t around = document_start_.value_or(-1) >= 0 ? 2 : 1;  // tokens that begin and end each document
  if (!document_bytes_.empty()) {
    const auto at = static_cast<std::size_t>(document);
    return mean(document_bytes_[at], offsets_[at + 1] - offsets_[at] - around);
  }
  return mean(manifest_.byte_count.value_or(0), token_count() - around * (std::ssize(offsets_) - 1));
}

void check_offsets(const TokenFile& file) {
  const std::span<const std::int64_t> offsets = file.document_offsets();
  for (std::size_t document = 0; document + 1 < offsets.size(); ++document) {
    if (offsets[document + 1] <= offsets[document]) {
      fail(ExitCode::data, "{}: document {} starts at token {} and ends at token {}; offsets must grow", file.path(),
           document, offsets[document], offsets[document + 1]);
    }
  }
  if (offsets.front() != 0 || offsets.back() != file.token_count()) {
    fail(ExitCode::data, "{}: its documents cover tokens {} to {}, but it has tokens 0 to {}", file.path(),
         offsets.front(), offsets.back(), file.token_count());
  }
  if (file.first_validation_document() < 0 || file.first_validation_document() >= std::ssize(offsets)) {
    fail(ExitCode::data, "{}: its validation part starts at document {}, but that number must be 0 to {}", file.path(),
         file.first_validation_document(), offsets.size() - 1);
  }
}

}  // namespace

void check_tokens(const TokenFile& file) {
  check_offsets(file);
  std::int32_t tokens[slice_tokens];
  float weights[slice_tokens];
  for (std::int64_t begin = 0; begin < file.token_count(); begin += slice_tokens) {
    const std::int64_t count = std::min(slice_tokens, file.token_count() - begin);
    file.read(begin, {tokens, static_cast<std::size_t>(count)});
    if (file.has_weights()) file.read_weights(begin, {weights, static_cast<std::size_t>(count)});
    for (std::int64_t i = 0; i < count; ++i) {
      if (tokens[i] < 0 || tokens[i] >= file.vocab_size()) {
        fail(ExitCode::data, "{}: token {} is {}, beyond the file's vocabulary of {}", file.path(), begin + i,
             static_cast<std::uint32_t>(tokens[i]), file.vocab_size());
      }
      if (file.has_weights() && !(std::isfinite(weights[i]) && weights[i] >= 0)) {
        fail(ExitCode::data, "{}: the weight of token {} is {}; weights are finite and not negative", file.path(),
             begin + i, weights[i]);
      }
    }
  }
}

std::unique_ptr<TokenFile> TokenFile::open(const std::string& path) {
  if (!path_exists(path)) {
    fail(ExitCode::data, "the token file {} does not exist; make it with prepare, or correct the path", path);
  }
  File opened = File::open(path, ExitCode::data);
  const std::int64_t bytes = opened.size();
  if (bytes == 0) fail(ExitCode::data, "the token file {} is empty (0 bytes); make it again with prepare", path);
  TokenManifest manifest = read_manifest(path);
  if (bytes != manifest.bytes) {
    fail(ExitCode::data, "{} has {} bytes, but its manifest says {}: it was {}; make it again with prepare", path,
         bytes, manifest.bytes, bytes < manifest.bytes ? "cut short" : "changed");
  }
  auto checksums = std::make_unique<const BlockChecksums>(opened);
  if (checksums->hash() != manifest.hash) {
    fail(ExitCode::data, "{} is damaged: its XXH3-128 is {}, its manifest says {}; make it again with prepare", path,
         checksums->hash(), manifest.hash);
  }
  auto file = std::make_unique<Hdf5TokenFile>(std::move(opened), std::move(manifest), std::move(checksums));
  file->check_layout();
  check_tokens(*file);
  return file;
}

}  // namespace ringtrain
