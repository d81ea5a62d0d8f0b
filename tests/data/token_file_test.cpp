// data/token_file.h: what was written is read, and everything that could be wrong with a file on a disk is an
// Error(data) with a clear sentence, found in the manifest where that can tell, before any header is read.
#include "data/token_file.h"

#include <cmath>
#include <fstream>

#include "tests/data/data_fixture.h"
#include "tests/support/paths.h"

namespace ringtrain {
namespace {

class TokenFileTest : public DataTest {
 protected:
  std::string refusal(const std::string& path) const {
    return error_of(ExitCode::data, [&] { TokenFile::open(path); });
  }
  /// Writes a sealed HDF5 file of any tokens, offsets and weights, valid but for what the arguments make wrong.
  template <class Token>
  std::string forge(const std::string& name, const std::vector<Token>& tokens, Hdf5Type type,
                    const std::vector<std::int64_t>& offsets, const std::vector<float>& weights = {},
                    Hdf5Attributes attributes = {}) const {
    std::string path = at(name);
    std::vector<Hdf5Dataset> datasets{
        {"document_offsets", Hdf5Type::int64, {static_cast<std::int64_t>(offsets.size())}, 0},
        {"tokens", type, {static_cast<std::int64_t>(tokens.size())}, 0}};
    if (!weights.empty()) {
      datasets.push_back({"weights", Hdf5Type::float32, {static_cast<std::int64_t>(weights.size())}, 0});
    }
    attributes.insert({{"format_version", std::int64_t{1}},
                       {"vocab_size", std::int64_t{257}},
                       {"first_validation_document", std::int64_t{1}}});
    Hdf5Writer writer = Hdf5Writer::create(path, datasets, attributes, ExitCode::data);
    writer.write(0, 0, offsets.data(), static_cast<std::int64_t>(offsets.size()));
    writer.write(1, 0, tokens.data(), static_cast<std::int64_t>(tokens.size()));
    if (!weights.empty()) writer.write(2, 0, weights.data(), static_cast<std::int64_t>(weights.size()));
    writer.finish();
    seal(path, writer.datasets());
    return path;
  }
  static void overwrite(const std::string& path, const std::string& content) {  // with no fsync: many times a test
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

TEST_F(TokenFileTest, SameContentSameHash) {
  EXPECT_EQ(TokenFile::open(write("a.h5", make_content({9, 4})))->hash(),
            TokenFile::open(write("b.h5", make_content({9, 4})))->hash());
}

TEST_F(TokenFileTest, MissingFile) {
  EXPECT_TRUE(holds(refusal(at("no.h5")), "no.h5 does not exist"));
}

TEST_F(TokenFileTest, EmptyFile) {
  write_file(at("a.h5"), "", ExitCode::data);
  EXPECT_TRUE(holds(refusal(at("a.h5")), "is empty"));
}

TEST_F(TokenFileTest, Folder) {
  EXPECT_TRUE(holds(refusal(folder), "is a folder"));
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

TEST_F(TokenFileTest, ManifestMissing) {
  const std::string path = write("a.h5", make_content({30}));
  remove_tree(manifest_path(path), ExitCode::data);
  EXPECT_TRUE(holds(refusal(path), "has no manifest"));
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
  EXPECT_TRUE(holds(with("\"format_version\": 1", "\"format_version\": 2"),
                    "its format_version is 2, and this one reads 1; make the token file again with prepare"));
  EXPECT_TRUE(holds(with("\"format_version\": 1", "\"format_version\": 1, \"more\": 0"), "is damaged"));
  EXPECT_TRUE(holds(with("\"count\": 30", "\"count\": -1"), "count is no count"));
  EXPECT_TRUE(holds(with("\"count\": 30", "\"count\": 1e3"), "count is no count"));
  EXPECT_TRUE(holds(with("\"count\": 30", "\"count\": 18446744073709551615"), "count is no count"));
  EXPECT_TRUE(holds(with("\"count\": 30", "\"count\": 9223372036854775807"), "other datasets"));
  EXPECT_TRUE(holds(with("\"count\": 30", "\"count\": 31"), "other datasets"));
  EXPECT_TRUE(holds(with("\"offset\": ", "\"offset\": 1"), "other datasets"));
  EXPECT_TRUE(holds(with("uint16", "float32"), "other datasets"));
  EXPECT_TRUE(holds(with("\"tokens\"", "\"wokens\""), "other datasets"));
  EXPECT_TRUE(holds(with("{", "["), "is damaged"));
  for (const std::string text : {"", "null", "[]", "{}", "\"text\"", "{\"format\": 1}"}) {
    write_file(manifest_path(path), text, ExitCode::data);
    EXPECT_TRUE(holds(refusal(path), "is damaged")) << text;
  }
  write_file(manifest_path(path), std::string(100000, '['), ExitCode::data);  // deep nesting
  EXPECT_TRUE(holds(refusal(path), "is damaged"));
  write_file(manifest_path(path), std::string(2 << 20, ' '), ExitCode::data);
  EXPECT_TRUE(holds(refusal(path), "bytes, where at most"));
}

TEST_F(TokenFileTest, SealedGarbageIsStillAnError) {
  const std::string path = at("text.h5");
  write_file(path, "no HDF5 at all", ExitCode::data);
  seal(path, {});
  EXPECT_TRUE(holds(refusal(path), "HDF5"));
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
            "tokens is of type int32"));
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
  EXPECT_TRUE(holds(
      refusal(forge("vocab.h5", good_tokens, Hdf5Type::uint16, good_offsets, {}, {{"vocab_size", std::int64_t{0}}})),
      "vocabulary has 0 tokens"));
  EXPECT_TRUE(holds(refusal(forge("kind.h5", good_tokens, Hdf5Type::uint16, good_offsets, {}, {{"vocab_size", 257.0}})),
                    "vocab_size"));
  EXPECT_TRUE(holds(refusal(forge("part.h5", good_tokens, Hdf5Type::uint16, good_offsets, {},
                                  {{"first_validation_document", std::int64_t{3}}})),
                    "starts at document 3 of 2"));
  EXPECT_TRUE(holds(refusal(forge("version.h5", good_tokens, Hdf5Type::uint16, good_offsets, {},
                                  {{"format_version", std::int64_t{9}}})),
                    "format version 9, and this program reads 1: make it again with prepare"));
}

TEST_F(TokenFileTest, FilesOfEarlierVersionsAreToBeMadeAgain) {
  // They kept their attributes in dense storage, as this file of the fuzzers' corpus does.
  const std::string path = at("earlier.h5");
  write_file(
      path,
      read_file(testing::source_folder() + "/tests/fuzz/corpus/token_file/bad-many-attributes.h5", ExitCode::data),
      ExitCode::data);
  seal(path, {});
  const std::string told = refusal(path);
  EXPECT_TRUE(holds(told, "more attributes than an object keeps in its header"));
  EXPECT_TRUE(
      holds(told, "an earlier version of this program made it so, or another program: make it again with prepare"));
}

TEST_F(TokenFileTest, BytesOfTextAreKnownWhereTheFileSaysThem) {
  const auto bytes_per_token = [&](const std::string& name, const Hdf5Attributes& attributes) {
    TokenFileWriter writer(at(name), {300, 10, 2, 2, false, {}, attributes});
    for (int document = 0; document < 2; ++document) {
      writer.append(std::vector<std::int32_t>{1, 2, 3, 4});
      writer.end_document();
    }
    writer.finish();
    return TokenFile::open(at(name))->bytes_per_token(0);
  };
  EXPECT_EQ(bytes_per_token("silent.h5", {}), 0);
  EXPECT_EQ(bytes_per_token("bytes.h5", {{"byte_count", std::int64_t{8}}}), 1);
  EXPECT_EQ(bytes_per_token("words.h5", {{"byte_count", std::int64_t{28}}}), 3.5);
  EXPECT_TRUE(holds(error_of(ExitCode::data,
                             [&] {
                               bytes_per_token("bad.h5", {{"byte_count", std::int64_t{-1}}});
                             }),
                    "says its text has -1 bytes"));
}

TEST_F(TokenFileTest, WriterNeverOverwrites) {
  const std::string path = write("a.h5", make_content({30}));
  const std::string before = read_file(path, ExitCode::data);
  EXPECT_TRUE(holds(error_of(ExitCode::usage, [&] { write("a.h5", make_content({50})); }), "never overwritten"));
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
  // A run killed in the middle, and one killed between the names of the manifest and of the token file.
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
    EXPECT_TRUE(holds(error_of(ExitCode::usage, [&] { write("c.h5", make_content({30})); }),
                      "exists and is not the manifest of a token file"));
    EXPECT_EQ(read_file(at("c.h5.manifest.json"), ExitCode::data), other);
    EXPECT_FALSE(path_exists(at("c.h5")));
  }
}

TEST_F(TokenFileTest, OneWriterAtATime) {
  const TokenFilePlan plan{257, 10, 1, 1, false, {}, {}};
  TokenFileWriter first(at("a.h5"), plan);
  for (const auto& message : {error_of(ExitCode::usage, [&] { TokenFileWriter::check_output(at("a.h5")); }),
                              error_of(ExitCode::usage, [&] { write("a.h5", make_content({30})); })}) {
    EXPECT_TRUE(holds(message, "a.h5: process " + std::to_string(::getpid()) + " is writing it now")) << message;
  }
  write("b.h5", make_content({30}));  // another one in the same folder
  first.append(std::vector<std::int32_t>(9, 1));
  first.end_document();
  first.finish();
  EXPECT_NO_THROW(TokenFile::open(at("a.h5")));
}

TEST_F(TokenFileTest, WriterRefusesAFullDiskAndAFolderThatIsNotThere) {
  const std::string sentence = error_of(ExitCode::usage, [&] {
    TokenFileWriter(at("a.h5"), {257, std::int64_t{1} << 55, 1, 1, false, {}, {}});
  });
  EXPECT_TRUE(holds(sentence, "No space left on device: needs"));
  EXPECT_TRUE(list_directory(folder, ExitCode::data).empty());
  EXPECT_TRUE(holds(error_of(ExitCode::usage, [&] { write("no/a.h5", make_content({30})); }), "does not exist"));
}

}  // namespace
}  // namespace ringtrain
