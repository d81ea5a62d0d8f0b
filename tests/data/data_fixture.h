// What the data tests share: token files made from plain vectors, and checks of Errors.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/token_file.h"
#include "data/token_file_writer.h"
#include "data/token_manifest.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/storage/files.h"
#include "framework/storage/hash.h"
#include "tests/support/error_of.h"
#include "tests/support/folder_test.h"
#include "tests/support/paths.h"

namespace ringtrain {

/// A token file's content: documents with their end token, and weights for all tokens or for none.
struct Content {
  std::vector<std::vector<std::int32_t>> documents;
  std::vector<float> weights;
  std::int64_t vocab_size = 257;
  std::int64_t validation_documents = 0;

  std::vector<std::int32_t> stream() const {
    std::vector<std::int32_t> all;
    for (const auto& document : documents) all.insert(all.end(), document.begin(), document.end());
    return all;
  }
};

class DataTest : public testing::FolderTest {
 protected:
  /// Writes a file, and creates the folders above it.
  void text(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(at(name)).parent_path());
    std::ofstream(at(name), std::ios::binary) << content;
  }
  /// Returns the path of a tokenizer that was made for the tests.
  static std::string tiny(const std::string& name) {
    return testing::source_folder() + "/tests/tokenizers/tiny/" + name;
  }
  static nlohmann::json tiny_json(const std::string& name) {
    std::ifstream file(tiny(name));
    return nlohmann::json::parse(file);
  }

  /// Returns the documents of a token file as texts, in its order.
  static std::vector<std::string> texts_of(const TokenFile& file, const Tokenizer& tokenizer) {
    std::vector<std::string> texts;
    const auto offsets = file.document_offsets();
    for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
      std::vector<std::int32_t> tokens(offsets[d + 1] - offsets[d]);
      file.read(offsets[d], tokens);
      EXPECT_EQ(tokens.back(), file.end_of_document());
      tokens.pop_back();
      texts.push_back(tokenizer.decode(tokens));
    }
    return texts;
  }

  std::string write(const std::string& name, const Content& content) const {
    TokenFilePlan plan;
    plan.vocab_size = content.vocab_size;
    plan.tokens = static_cast<std::int64_t>(content.stream().size());
    plan.documents = static_cast<std::int64_t>(content.documents.size());
    plan.first_validation_document = plan.documents - content.validation_documents;
    plan.weights = !content.weights.empty();
    TokenFileWriter writer(at(name), plan);
    std::size_t begin = 0;
    for (const auto& document : content.documents) {
      const std::span<const std::int32_t> body(document.data(), document.size() - 1);
      if (plan.weights) {
        writer.append(body, {content.weights.data() + begin, body.size()});
        writer.end_document(content.weights[begin + body.size()]);
      } else {
        writer.append(body);
        writer.end_document();
      }
      begin += document.size();
    }
    writer.finish();
    return at(name);
  }

  /// Writes the manifest that fits a file with any content, after the change, as a forger would.
  static void seal(
      const std::string& path, const std::vector<Hdf5Dataset>& datasets,
      const std::function<void(TokenManifest&)>& change = [](TokenManifest&) {}) {
    TokenManifest manifest;
    manifest.bytes = file_size(path, ExitCode::data);
    manifest.hash = hash_file(path, ExitCode::data);
    manifest.vocab_size = 257;
    manifest.first_validation_document = 1;
    manifest.datasets = datasets;
    change(manifest);
    write_file(manifest_path(path), to_json(manifest), ExitCode::data);
  }
};

namespace fs = std::filesystem;
using testing::error_of;
using testing::expect_error;
using testing::holds;

/// Documents of the given lengths (end token included) with tokens that follow no simple pattern.
inline Content make_content(const std::vector<std::int64_t>& lengths, bool weights = false) {
  Content content;
  std::uint32_t state = 12345;
  const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 24; };
  for (const std::int64_t length : lengths) {
    std::vector<std::int32_t> document;
    for (std::int64_t i = 0; i + 1 < length; ++i) document.push_back(static_cast<std::int32_t>(next()));
    document.push_back(256);
    content.documents.push_back(document);
    for (std::int64_t i = 0; weights && i < length; ++i) {
      content.weights.push_back(static_cast<float>(next() % 4) * 0.5f);  // 0 among them
    }
  }
  return content;
}

}  // namespace ringtrain
