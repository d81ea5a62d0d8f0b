// Text to token files: which files become documents, their content, and what is refused.
#include "data/preparation/prepare.h"

#include <sys/stat.h>

#include <set>

#include "data/token_file.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "tests/data/data_fixture.h"
#include "tests/support/hdf5_of_library.h"

namespace ringtrain {
namespace {

class PrepareTest : public DataTest {
 protected:
  std::vector<std::string> names(const SourceList& list) const {
    std::vector<std::string> result;
    for (const Source& source : list.sources) result.push_back(source.path.substr(folder.size() + 1));
    return result;
  }
  /// Returns the options of byte tokens with 1 or more threads.
  TextOptions bytes(int threads = 1) const {
    TextOptions options;
    options.tokenizer = tokenizer.get();
    options.document_end = end_of_document;
    options.threads = threads;
    return options;
  }
  std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer();
};

TEST_F(PrepareTest, WalksSortedAndLeavesOutWhatIsNoNewText) {
  text("in/b.txt", "bee");
  text("in/a/z.txt", "zed");
  text("in/a/empty", "");
  text("in/a/binary", std::string("ab\0cd", 5));
  text("in/c.txt", "bee");  // the same content as b.txt
  fs::create_symlink(at("in/b.txt"), at("in/link-to-b"));
  fs::create_directory_symlink(at("in"), at("in/a/loop"));
  fs::create_symlink(at("nowhere"), at("in/dangling"));
  ASSERT_EQ(::mkfifo(at("in/pipe").c_str(), 0600), 0);
  const SourceList list = find_sources({folder + "/in", folder + "/in/b.txt", folder + "/in/a/"}, nullptr);
  EXPECT_EQ(names(list), (std::vector<std::string>{"in/a/z.txt", "in/b.txt"}));
  EXPECT_EQ(list.bytes, 6);
  EXPECT_EQ(list.binary, 1);
  EXPECT_EQ(list.empty, 1);
  EXPECT_EQ(list.duplicates, 1);
  EXPECT_EQ(list.special, 2);
  EXPECT_EQ(list.unreadable, 0);
  EXPECT_EQ(list.sources[1].hash, hash_bytes("bee"));
}

TEST_F(PrepareTest, ALinkOutOfTheInputsIsCountedAndNotFollowed) {
  text("secret/key", "a private key");
  text("secret/more/notes", "private notes");
  text("in/a", "text");
  text("other/b", "more text");
  fs::create_symlink(at("secret/key"), at("in/key"));
  fs::create_directory_symlink(at("secret"), at("in/folder"));
  fs::create_symlink("../secret/more/notes", at("in/notes"));
  fs::create_symlink(at("other/b"), at("in/b"));  // leads to another input
  fs::create_directory_symlink(at("in"), at("named"));
  text("inner", "not below in/, only its beginning is the same");
  fs::create_symlink(at("inner"), at("in/inner"));
  text("in/a.h5.partial-1-0123abcd", "what another process is writing");
  SourceList list = find_sources({at("in"), at("other")}, nullptr);
  EXPECT_EQ(names(list), (std::vector<std::string>{"in/a", "in/b"}));
  EXPECT_EQ(list.links, 4);
  EXPECT_EQ(list.special, 0);
  list = find_sources({at("named")}, nullptr);  // a link that the user names is followed
  EXPECT_EQ(names(list), (std::vector<std::string>{"named/a"}));
  EXPECT_EQ(list.links, 5);
  EXPECT_EQ(names(find_sources({at("in/key")}, nullptr)), (std::vector<std::string>{"in/key"}));
  fs::remove(at("in/a"));
  expect_error(ExitCode::data, "5 links to outside the inputs", [&] { find_sources({at("in")}, nullptr); });
}

TEST_F(PrepareTest, LateNulByteMakesAFileBinary) {
  text("a", "fine");
  text("b", std::string(200000, 'x') + std::string(1, '\0'));
  EXPECT_EQ(find_sources({folder}, nullptr).binary, 1);
}

TEST_F(PrepareTest, InputsThatCannotServe) {
  expect_error(ExitCode::data, "in", [&] { find_sources({at("no")}, nullptr); });
  expect_error(ExitCode::data, "No such file or directory", [&] { find_sources({at("no")}, nullptr); });
  expect_error(ExitCode::data, "hold no text", [&] { find_sources({folder}, nullptr); });
  text("empty", "");
  expect_error(ExitCode::data, "1 empty", [&] { find_sources({folder}, nullptr); });
  expect_error(ExitCode::data, "neither a file", [] { find_sources({"/dev/null"}, nullptr); });
}

TEST_F(PrepareTest, DocumentsAreTheTextsShuffledAndSplit) {
  std::set<std::string> texts;
  for (int i = 0; i < 50; ++i) {
    std::string content = "document " + std::to_string(i) + ": ";
    for (int j = 0; j < i * 997; ++j) content += static_cast<char>(1 + (i * 31 + j * 7) % 255);
    text("in/" + std::to_string(i), content);
    texts.insert(content);
  }
  const SourceList list = find_sources({folder + "/in"}, nullptr);
  std::int64_t last_bytes = 0, last_tokens = 0;
  const CorpusSummary summary = prepare_text(
      list, {at("a.h5"), 0.1, 7}, bytes(), [&](std::int64_t read) { last_bytes = read; },
      [&](std::int64_t written, std::int64_t all) {
        EXPECT_GT(written, last_tokens);
        last_tokens = written;
        EXPECT_EQ(all, list.bytes + 50);
      });
  const auto file = TokenFile::open(at("a.h5"));
  const std::vector<std::string> found = texts_of(*file, *tokenizer);
  EXPECT_EQ(std::set<std::string>(found.begin(), found.end()), texts);
  EXPECT_EQ(found.size(), 50u);
  std::vector<std::string> in_order;
  for (const Source& source : list.sources) in_order.push_back(read_file(source.path, ExitCode::data));
  EXPECT_NE(found, in_order);
  EXPECT_EQ(file->vocab_size(), 257);
  EXPECT_EQ(file->end_of_document(), end_of_document);
  EXPECT_EQ(file->first_validation_document(), 45);
  EXPECT_EQ(summary.validation_documents, 5);
  EXPECT_EQ(summary.tokens, file->token_count());
  EXPECT_EQ(summary.tokens, list.bytes + 50);
  EXPECT_EQ(last_bytes, list.bytes);
  EXPECT_EQ(last_tokens, summary.tokens);
  EXPECT_EQ(summary.validation_tokens, file->token_count() - file->document_offsets()[45]);
  EXPECT_EQ(summary.hash, file->hash());
  for (std::size_t d = 0; d < found.size(); ++d) {
    EXPECT_EQ(summary.lengths[d], static_cast<std::int64_t>(found[d].size()) + 1);
  }
  const testing::Hdf5OfLibrary reader(at("a.h5"));
  EXPECT_EQ(reader.integer("byte_count"), list.bytes);
  std::string hashes;
  for (const std::string& one : found) hashes += hash_bytes(one) + "\n";
  EXPECT_EQ(reader.text("source_hashes"), hashes);
  EXPECT_EQ(reader.text("sources_hash"), hash_bytes(hashes));

  // The same texts elsewhere and the same seed: the same bytes; another seed: another order.
  fs::create_directories(at("moved"));
  fs::rename(at("in"), at("moved/in"));
  const SourceList moved = find_sources({folder + "/moved"}, nullptr);
  EXPECT_EQ(prepare_text(moved, {at("b.h5"), 0.1, 7}, bytes(3), nullptr, nullptr).hash, summary.hash);
  EXPECT_NE(prepare_text(moved, {at("c.h5"), 0.1, 8}, bytes(), nullptr, nullptr).hash, summary.hash);
}

TEST_F(PrepareTest, ValidationTakesItsShareButNeverAll) {
  EXPECT_EQ(validation_count(100, 0.1), 10);
  EXPECT_EQ(validation_count(100, 0.001), 1);
  EXPECT_EQ(validation_count(100, 0), 0);
  EXPECT_EQ(validation_count(3, 0.99), 2);
  EXPECT_EQ(validation_count(1, 0.5), 0);
}

TEST_F(PrepareTest, SourceThatChangesBetweenTheTwoLooks) {
  text("a", "first content");
  const SourceList list = find_sources({at("a")}, nullptr);
  text("a", "other content");  // of the same length
  expect_error(ExitCode::data, "changed while it was being read", [&] {
    prepare_text(list, {at("a.h5"), 0, 1}, bytes(), nullptr, nullptr);
  });
  text("a", "short");
  expect_error(ExitCode::data, "changed while it was being read", [&] {
    prepare_text(list, {at("a.h5"), 0, 1}, bytes(), nullptr, nullptr);
  });
  EXPECT_EQ(list_directory(folder, ExitCode::data), std::vector<std::string>{"a"});  // nothing is left
}

}  // namespace
}  // namespace ringtrain
