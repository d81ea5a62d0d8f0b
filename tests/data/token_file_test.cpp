// data/token_file.h: what was written is read back, and everything that could be wrong with a file on a disk is an
// Error(data) with a clear message. If the manifest shows it, it is found before any dataset is read.
#include "data/token_file.h"

#include <cmath>
#include <fstream>

#include "tests/data/data_fixture.h"
#include "tests/support/hdf5_of_library.h"

namespace ringtrain {
namespace {

class TokenFileTest : public DataTest {
 protected:
  std::string refusal(const std::string& path) const {
    return error_of(ExitCode::data, [&] { TokenFile::open(path); });
  }
  /// Writes a sealed HDF5 file of any tokens, offsets, and weights, valid except for what the arguments make wrong.
  template <class Token>
  std::string forge(
      const std::string& name, const std::vector<Token>& tokens, Hdf5Type type,
      const std::vector<std::int64_t>& offsets, const std::vector<float>& weights = {},
      const std::function<void(TokenManifest&)>& change = [](TokenManifest&) {}) const {
    std::string path = at(name);
    std::vector<Hdf5Dataset> datasets{
        {"document_offsets", Hdf5Type::int64, {static_cast<std::int64_t>(offsets.size())}, 0},
        {"tokens", type, {static_cast<std::int64_t>(tokens.size())}, 0}};
    if (!weights.empty()) {
      datasets.push_back({"weights", Hdf5Type::float32, {static_cast<std::int64_t>(weights.size())}, 0});
    }
    Hdf5Writer writer = Hdf5Writer::create(path, datasets, {}, ExitCode::data);
    writer.write(0, 0, offsets.data(), static_cast<std::int64_t>(offsets.size()));
    writer.write(1, 0, tokens.data(), static_cast<std::int64_t>(tokens.size()));
    if (!weights.empty()) writer.write(2, 0, weights.data(), static_cast<std::int64_t>(weights.size()));
    writer.finish();
    seal(path, writer.datasets(), change);
    return path;
  }
  /// The same with good content and an incorrect change.
  std::string refusal_of(const std::string& name, const std::function<void(TokenManifest&)>& change) const {
    return refusal(forge(name, good_tokens, Hdf5Type::uint16, good_offsets, {}, change));
  }
  static void overwrite(const std::string& path, const std::string& content) {  // without fsync: called many times
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  }
  const std::vector<std::uint16_t> good_tokens{1, 2, 256, 3, 256};
  const std::vector<std::int64_t> good_offsets{0, 3, 5};
};

TEST_F(TokenFileTest, ReadsWhatWasWritten) {
  Content content = make_content({5, 70000, 1, 33333}, true);
  content.validation_documents = 2;
  const auto file = TokenFile::open(write("a.h5", content));
  EXPECT_EQ(file->vocab_size(), 257);
  EXPECT_EQ(file->token_count(), 5 + 70000 + 1 + 33333);
  EXPECT_EQ(file->first_validation_document(), 2);
  EXPECT_TRUE(file->has_weights());
  EXPECT_EQ(file->hash(), hash_file(file->path(), ExitCode::data));
  const std::vector<std::int64_t> offsets(file->document_offsets().begin(), file->document_offsets().end());
  EXPECT_EQ(offsets, (std::vector<std::int64_t>{0, 5, 70005, 70006, 103339}));
  const std::vector<std::int32_t> stream = content.stream();
  for (const auto& [begin, count] : {std::pair{0, 103339}, {103338, 1}, {4, 8192}, {4095, 8193}, {7, 0}}) {
    std::vector<std::int32_t> tokens(count, -1);
    std::vector<float> weights(count, -1);
    file->read(begin, tokens);
    file->read_weights(begin, weights);
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), stream.begin() + begin)) << begin;
    EXPECT_TRUE(std::equal(weights.begin(), weights.end(), content.weights.begin() + begin)) << begin;
  }
  std::vector<std::int32_t> beyond(2);
  EXPECT_ANY_THROW(file->read(103338, beyond));
}

TEST_F(TokenFileTest, WithoutWeightsEveryTokenCountsOne) {
  const auto file = TokenFile::open(write("a.h5", make_content({9, 4})));
  EXPECT_FALSE(file->has_weights());
  std::vector<float> weights(13, 0);
  file->read_weights(0, weights);
  EXPECT_EQ(weights, std::vector<float>(13, 1.0f));
}

TEST_F(TokenFileTest, LargeVocabularyIsKeptIn32Bits) {
  Content content;
  content.vocab_size = 200000;
  content.documents = {{0, 65535, 65536, 199998, 199999}};
  const auto file = TokenFile::open(write("a.h5", content));
  std::vector<std::int32_t> tokens(5);
  file->read(0, tokens);
  EXPECT_EQ(tokens, content.stream());
}

TEST_F(TokenFileTest, WhatIsNoTokenFile) {
  EXPECT_TRUE(holds(refusal(at("no.h5")), "no.h5 does not exist"));
  EXPECT_TRUE(holds(refusal(folder), "is a folder"));
  write_file(at("a.h5"), "", ExitCode::data);
  EXPECT_TRUE(holds(refusal(at("a.h5")), "is empty"));
  const std::string path = write("b.h5", make_content({30}));
  remove_tree(manifest_path(path), ExitCode::data);
  EXPECT_TRUE(holds(refusal(path), "has no manifest"));
}

TEST_F(TokenFileTest, TruncatedAnywhere) {
  const std::string path = write("a.h5", make_content({300}));
  const std::string whole = read_file(path, ExitCode::data);
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, whole.size() / 2, whole.size() - 1}) {
    write_file(path, whole.substr(0, size), ExitCode::data);
    EXPECT_TRUE(holds(refusal(path), "cut short"));
  }
  write_file(path, whole + "x", ExitCode::data);
  EXPECT_TRUE(holds(refusal(path), "was changed"));
}

TEST_F(TokenFileTest, BitFlippedAnywhere) {
  const std::string path = write("a.h5", make_content({300}, true));
  const std::string whole = read_file(path, ExitCode::data);
  for (std::size_t at = 0; at < whole.size(); at += 97) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    overwrite(path, damaged);
    ASSERT_TRUE(holds(refusal(path), "is damaged: its XXH3-128 is")) << "byte " << at;
  }
}

TEST_F(TokenFileTest, BitFlipsAllOverTheManifestAreFound) {
  const std::string path = write("a.h5", make_content({30}, true));
  const std::string manifest = read_file(manifest_path(path), ExitCode::data);
  for (std::size_t bit = 0; bit < (manifest.size() - 1) * 8; bit += 7) {
    std::string damaged = manifest;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    overwrite(manifest_path(path), damaged);
    try {
      TokenFile::open(path);
      FAIL() << "accepted with bit " << bit << " flipped: " << damaged;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ExitCode::data) << error.what();
    }
  }
}

TEST_F(TokenFileTest, HostileManifests) {
  const std::string path = write("a.h5", make_content({30}));
  const std::string manifest = read_file(manifest_path(path), ExitCode::data);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = manifest;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    write_file(manifest_path(path), text.replace(at, from.size(), to), ExitCode::data);
    return refusal(path);
  };
  EXPECT_TRUE(holds(with("\"format_version\": 2", "\"format_version\": 3"),
                    "its format_version is 3, but this version reads 2; make the token file again with prepare"));
  EXPECT_TRUE(holds(with("\"format_version\": 2", "\"format_version\": 2, \"more\": 0"), "is damaged"));
  EXPECT_TRUE(holds(with("\"vocab_size\": 257", "\"vocab_size\": -1"), "vocab_size is not a count"));
  EXPECT_TRUE(holds(with("\"vocab_size\": 257", "\"vocab_size\": 1e3"), "vocab_size is not a count"));
  EXPECT_TRUE(holds(with("\"vocab_size\": 257", "\"vocab_size\": 18446744073709551615"), "vocab_size is not a count"));
  EXPECT_TRUE(holds(with("\"vocab_size\": 257", "\"vocab_size\": 258"), "its content has hash"));
  EXPECT_TRUE(holds(with("\"offset\": ", "\"offset\": 1"), "dataset tokens reaches beyond the file's end"));
  EXPECT_TRUE(holds(with("uint16", "float16"), "type float16 is unknown"));
  EXPECT_TRUE(holds(with("\"tokens\"", "\"wokens\""), "its content has hash"));
  EXPECT_TRUE(holds(with("{", "["), "is damaged"));
  for (const std::string text : {"", "null", "[]", "{}", "\"text\"", "{\"format\": 1}"}) {
    write_file(manifest_path(path), text, ExitCode::data);
    EXPECT_TRUE(holds(refusal(path), "is damaged")) << text;
  }
  write_file(manifest_path(path), std::string(100000, '['), ExitCode::data);  // deep nesting
  EXPECT_TRUE(holds(refusal(path), "is damaged"));
  write_file(manifest_path(path), std::string((1 << 20) + 1, ' '), ExitCode::data);
  EXPECT_TRUE(holds(refusal(path), "bytes, but may have at most"));
}

TEST_F(TokenFileTest, ForgedManifests) {
  const auto of = [](TokenManifest& manifest, const char* name) -> Hdf5Dataset& {
    return const_cast<Hdf5Dataset&>(*find_dataset(manifest.datasets, name));
  };
  EXPECT_TRUE(holds(refusal_of("none.h5", [](auto& m) { m.datasets.clear(); }), "it has no dataset tokens"));
  EXPECT_TRUE(holds(refusal_of("name.h5", [&](auto& m) { of(m, "document_offsets").name = "x"; }),
                    "it has no dataset document_offsets"));
  EXPECT_TRUE(holds(refusal_of("rank.h5", [&](auto& m) { of(m, "tokens").dims = {5, 1}; }), "has 2 dimensions"));
  EXPECT_TRUE(
      holds(refusal_of("type.h5", [&](auto& m) { of(m, "tokens").type = Hdf5Type::uint8; }), "has the type uint8"));
  EXPECT_TRUE(holds(refusal_of("huge.h5", [&](auto& m) { of(m, "tokens").dims = {INT64_MAX}; }),
                    "dataset tokens is larger than the file"));
  EXPECT_TRUE(holds(refusal_of("end.h5", [&](auto& m) { of(m, "tokens").offset = m.bytes - 9; }),
                    "dataset tokens reaches beyond the file's end"));
  EXPECT_TRUE(holds(refusal_of("same.h5", [&](auto& m) { of(m, "tokens").offset = of(m, "document_offsets").offset; }),
                    "two datasets share bytes"));
  EXPECT_TRUE(holds(refusal_of("twice.h5", [&](auto& m) { of(m, "tokens").name = "document_offsets"; }),
                    "two datasets are called document_offsets"));
  EXPECT_TRUE(holds(refusal_of("bytes.h5",
                               [&](auto& m) {
                                 m.datasets.push_back({"document_bytes", Hdf5Type::int64, {1}, 0});
                               }),
                    "document_bytes must have an int64 for each document"));
  EXPECT_TRUE(holds(refusal_of("vocab.h5", [](auto& m) { m.vocab_size = 0; }), "vocabulary has 0 tokens"));
  EXPECT_TRUE(holds(refusal_of("wide.h5", [](auto& m) { m.vocab_size = INT64_MAX; }), "it must have 2 to 2147483647"));
  EXPECT_TRUE(holds(refusal_of("ends.h5", [](auto& m) { m.end_of_document = 257; }), "token 257 ends a document"));
  EXPECT_TRUE(holds(refusal_of("hash.h5", [](auto& m) { m.tokenizer_hash = "mine"; }), "tokenizer_hash is not a hash"));
  EXPECT_TRUE(holds(refusal_of("text.h5", [](auto& m) { m.byte_count = -1; }), "byte_count is not a count"));
  EXPECT_TRUE(holds(refusal_of("part.h5", [](auto& m) { m.first_validation_document = 3; }),
                    "starts at document 3, but that number must be 0 to 2"));
  EXPECT_NO_THROW(TokenFile::open(forge("good.h5", good_tokens, Hdf5Type::uint16, good_offsets, {}, [](auto& m) {
    m.tokenizer_hash = std::string(32, 'a');
    m.end_of_document = 0;
  })));
}

TEST_F(TokenFileTest, ForgedContent) {
  EXPECT_NO_THROW(TokenFile::open(forge("good.h5", good_tokens, Hdf5Type::uint16, good_offsets)));
  EXPECT_TRUE(
      holds(refusal(forge("token.h5", std::vector<std::uint16_t>{1, 2, 256, 257, 256}, Hdf5Type::uint16, good_offsets)),
            "token 3 is 257, beyond the file's vocabulary of 257"));
  EXPECT_TRUE(holds(
      refusal(forge("wide.h5", std::vector<std::uint32_t>{1, 2, 256, 3, 0xFFFFFFFF}, Hdf5Type::uint32, good_offsets)),
      "token 4 is 4294967295"));
  EXPECT_TRUE(
      holds(refusal(forge("type.h5", std::vector<std::int32_t>{1, 2, 256, 3, 256}, Hdf5Type::int32, good_offsets)),
            "tokens has the type int32"));
  EXPECT_TRUE(holds(refusal(forge("flat.h5", good_tokens, Hdf5Type::uint16, {0, 3, 3, 5})), "offsets must grow"));
  EXPECT_TRUE(holds(refusal(forge("back.h5", good_tokens, Hdf5Type::uint16, {0, 4, 3, 5})), "offsets must grow"));
  EXPECT_TRUE(holds(refusal(forge("far.h5", good_tokens, Hdf5Type::uint16, {0, INT64_MAX})), "cover tokens 0 to"));
  EXPECT_TRUE(holds(refusal(forge("low.h5", good_tokens, Hdf5Type::uint16, {INT64_MIN, 5})), "cover tokens"));
  EXPECT_TRUE(holds(refusal(forge("short.h5", good_tokens, Hdf5Type::uint16, {0, 4})), "cover tokens 0 to 4"));
  EXPECT_TRUE(holds(refusal(forge("late.h5", good_tokens, Hdf5Type::uint16, {1, 5})), "cover tokens 1 to 5"));
  EXPECT_TRUE(holds(refusal(forge("none.h5", good_tokens, Hdf5Type::uint16, {0})), "holds no token"));
  EXPECT_TRUE(
      holds(refusal(forge("few.h5", good_tokens, Hdf5Type::uint16, good_offsets, {1, 1})), "2 weights for 5 tokens"));
  EXPECT_TRUE(holds(refusal(forge("nan.h5", good_tokens, Hdf5Type::uint16, good_offsets, {1, 1, NAN, 1, 1})),
                    "the weight of token 2 is nan"));
  EXPECT_TRUE(holds(refusal(forge("minus.h5", good_tokens, Hdf5Type::uint16, good_offsets, {1, 1, 1, -1, 1})),
                    "the weight of token 3 is -1"));
}

TEST_F(TokenFileTest, BytesOfTextAreKnownWhereTheFileSaysThem) {
  const auto bytes_per_token = [&](const std::string& name, std::optional<std::int64_t> byte_count) {
    TokenFilePlan plan{300, 10, 2, 2, false, {}, {}};
    plan.byte_count = byte_count;
    TokenFileWriter writer(at(name), plan);
    for (int document = 0; document < 2; ++document) {
      writer.append(std::vector<std::int32_t>{1, 2, 3, 4});
      writer.end_document();
    }
    writer.finish();
    return TokenFile::open(at(name))->bytes_per_token(0);
  };
  EXPECT_EQ(bytes_per_token("silent.h5", {}), 0);
  EXPECT_EQ(bytes_per_token("bytes.h5", 8), 1);
  EXPECT_EQ(bytes_per_token("words.h5", 28), 3.5);
}

TEST_F(TokenFileTest, OtherProgramsFindInTheFileWhatTheManifestSays) {
  TokenFilePlan plan{300, 4, 1, 1, false, "abc\n", {{"kind", "text"}}};
  plan.tokenizer_hash = std::string(32, 'b');
  plan.byte_count = 9;
  TokenFileWriter writer(at("a.h5"), plan);
  writer.append(std::vector<std::int32_t>{1, 2, 3});
  writer.end_document();
  writer.finish();
  const testing::Hdf5OfLibrary library(at("a.h5"));
  const TokenManifest manifest = read_manifest(at("a.h5"));
  for (const Hdf5Dataset& dataset : manifest.datasets) EXPECT_EQ(dataset.offset, library.offset(dataset.name));
  EXPECT_EQ(library.values("tokens"), (std::vector<double>{1, 2, 3, 299}));
  EXPECT_EQ(library.integer("format_version"), 2);
  EXPECT_EQ(library.integer("vocab_size"), manifest.vocab_size);
  EXPECT_EQ(library.integer("end_of_document"), manifest.end_of_document);
  EXPECT_EQ(library.integer("first_validation_document"), manifest.first_validation_document);
  EXPECT_EQ(library.integer("byte_count"), manifest.byte_count);
  EXPECT_EQ(library.text("tokenizer_hash"), manifest.tokenizer_hash);
  EXPECT_EQ(library.text("source_hashes"), "abc\n");
}

TEST_F(TokenFileTest, FilesByH5pyOpenAndForgedOnesAreRefused) {
  // tests/fuzz/make_corpus.py made them: layouts by h5py, hashes by the package xxhash.
  int good = 0, bad = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(testing::source_folder() + "/tests/fuzz/corpus/token_file")) {
    const std::string name = entry.path().filename().string(), path = at(name);
    const std::string bytes = read_file(entry.path().string(), ExitCode::data);
    const std::size_t end = bytes.find('\0');
    write_file(manifest_path(path), bytes.substr(0, end), ExitCode::data);
    write_file(path, bytes.substr(end + 1), ExitCode::data);
    if (name.starts_with("bad-")) {
      EXPECT_TRUE(holds(refusal(path), path)) << name;
      ++bad;
      continue;
    }
    const auto file = TokenFile::open(path);
    std::vector<std::int32_t> tokens(5);
    file->read(0, tokens);
    EXPECT_EQ(tokens, (std::vector<std::int32_t>{1, 2, 256, 3, 256})) << name;
    EXPECT_EQ(file->document_offsets()[1], 3) << name;
    EXPECT_EQ(file->end_of_document(), name == "good-said" ? 0 : 256) << name;
    ++good;
  }
  EXPECT_EQ(good, 7);
  EXPECT_EQ(bad, 6);
}

TEST_F(TokenFileTest, WriterNeverOverwrites) {
  const std::string path = write("a.h5", make_content({30}));
  const std::string before = read_file(path, ExitCode::data);
  expect_error(ExitCode::usage, "never overwritten", [&] { write("a.h5", make_content({50})); });
  EXPECT_EQ(read_file(path, ExitCode::data), before);
  EXPECT_EQ(list_directory(folder, ExitCode::data), (std::vector<std::string>{"a.h5", "a.h5.manifest.json"}));
}

TEST_F(TokenFileTest, UnfinishedWriterLeavesNothing) {
  {
    TokenFileWriter writer(at("a.h5"), {257, 10, 1, 1, false, {}, {}});
    writer.append(std::vector<std::int32_t>{1, 2, 3});
    const std::vector<std::string> names = list_directory(folder, ExitCode::data);
    ASSERT_EQ(names.size(), 2u);
    for (const std::size_t i : {0U, 1U}) {
      const auto name = parse_unique_name(names[i], "partial");
      ASSERT_TRUE(name.has_value()) << names[i];
      EXPECT_EQ(name->base, i == 0 ? "a.h5.manifest.json" : "a.h5");
    }
  }
  EXPECT_TRUE(list_directory(folder, ExitCode::data).empty());
}

TEST_F(TokenFileTest, LeftoversOfAKilledRunAreReplacedAndNothingElse) {
  // A run killed in the middle, and one killed between renaming the manifest and renaming the token file.
  write("b.h5", make_content({40}));
  rename_path(at("b.h5.manifest.json"), at("a.h5.manifest.json"), ExitCode::data);
  remove_tree(at("b.h5"), ExitCode::data);
  write_file(at("a.h5.partial-1-0123abcd"), "half a file", ExitCode::data);
  write_file(at("a.h5.partial"), "a user's", ExitCode::data);
  EXPECT_NO_THROW(TokenFile::open(write("a.h5", make_content({30}))));
  EXPECT_EQ(list_directory(folder, ExitCode::data),
            (std::vector<std::string>{"a.h5", "a.h5.manifest.json", "a.h5.partial"}));
  for (const std::string other : {"{}", R"({"format": "another"})", "text"}) {
    write_file(at("c.h5.manifest.json"), other, ExitCode::data);
    expect_error(ExitCode::usage, "exists and is not the manifest of a token file",
                 [&] { write("c.h5", make_content({30})); });
    EXPECT_EQ(read_file(at("c.h5.manifest.json"), ExitCode::data), other);
    EXPECT_FALSE(path_exists(at("c.h5")));
  }
}

TEST_F(TokenFileTest, OneWriterAtATime) {
  const TokenFilePlan plan{257, 10, 1, 1, false, {}, {}};
  TokenFileWriter first(at("a.h5"), plan);
  const std::string part = "a.h5: process " + std::to_string(::getpid()) + " is writing it now";
  expect_error(ExitCode::usage, part, [&] { TokenFileWriter::check_output(at("a.h5")); });
  expect_error(ExitCode::usage, part, [&] { write("a.h5", make_content({30})); });
  write("b.h5", make_content({30}));  // another one in the same folder
  first.append(std::vector<std::int32_t>(9, 1));
  first.end_document();
  first.finish();
  EXPECT_NO_THROW(TokenFile::open(at("a.h5")));
}

TEST_F(TokenFileTest, WriterRefusesAFullDiskAndAFolderThatIsNotThere) {
  expect_error(ExitCode::usage, "No space left on device: it needs", [&] {
    TokenFileWriter(at("a.h5"), {257, std::int64_t{1} << 55, 1, 1, false, {}, {}});
  });
  EXPECT_TRUE(list_directory(folder, ExitCode::data).empty());
  expect_error(ExitCode::usage, "does not exist", [&] { write("no/a.h5", make_content({30})); });
}

}  // namespace
}  // namespace ringtrain
