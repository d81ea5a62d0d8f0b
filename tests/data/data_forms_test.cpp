// Every form of texts and data sets, by name and by content, named directly and in a folder: each is read correctly, or
// refused with a message.
#include <algorithm>

#include "data/preparation/data_forms.h"
#include "data/preparation/prepare.h"
#include "data/token_file.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "tests/data/data_fixture.h"
#include "tests/data/packed.h"

namespace ringtrain {
namespace {

using namespace std::string_literals;

struct Form {
  std::string name, content;
  std::vector<std::string> read;  // the documents, sorted; empty: it is refused
  std::string refusal = {};       // a part of it
  bool text = false;              // in a folder, it is text among other files, not data
};

const std::string one_and_two = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
const std::vector<std::string> both{"one", "two"};
const std::string array = R"([{"text": "one"}, {"text": "two"}])";
const std::string command =
    "`python3 -m ringtrain_data convert --input FILE --tokenizer DIR --output tokens.h5` (docs/datasets.md)";

std::vector<Form> all_forms() {
  return {
      // Texts.
      {"a.txt", "one", {"one"}, "", true},
      {"a", "one", {"one"}, "", true},
      {"a.py", "print(1)", {"print(1)"}, "", true},
      {"a.txt.gz", gzipped("one"), {"one"}, "", true},
      {"a.txt.zst", zstandard("one"), {"one"}, "", true},
      {"a.txt.zst", "\x28\xB5\x2F\xFD\0\x88\x19\0\0one"s, {"one"}, "", true},  // has a window of 128 MiB
      {"a.txt", "{\"text\": \"one\"}", {"{\"text\": \"one\"}"}, "", true},     // its name says that it is text
      {"a.txt", "o\0n\0e\0"s, {}, "1 binary", true},                           // UTF-16
      // JSONL.
      {"a.jsonl", one_and_two, both},
      {"a.ndjson", one_and_two, both},
      {"A.JSONL", one_and_two, both},
      {"a.jsonl.gz", gzipped(one_and_two), both},
      {"a.jsonl.zst", zstandard(one_and_two), both},
      {"a.jsonl.zst", "\x28\xB5\x2F\xFD\0\x90\x19\0\0one"s, {}, "has a window of more than 128 MiB; decompress"},
      {"a.jsonl", "\xEF\xBB\xBF" + one_and_two, both},
      {"a.jsonl", "{\"text\": \"one\"}\r\n\r\n{\"text\": \"two\"}", both},
      {"a.jsonl", R"({"text": "a\ud83db"})", {"a\uFFFDb"}},
      {"a.jsonl", R"({"score": NaN, "text": "one", "l": [Infinity, -Infinity]})", {"one"}},
      {"a.jsonl", "{\"text\": null}\n{\"text\": \"one\"}", {"one"}},
      {"a.jsonl", R"({"completion": "two", "prompt": "one "})", {"one two"}},
      {"a.jsonl", array, {}, "a.jsonl:1: not a JSON object"},
      {"a.jsonl", "{\n  \"text\": \"one\"\n}\n", {}, "a.jsonl:1: "},
      {"a.jsonl", R"({"body": "one"})", {}, "a.jsonl:1: no field \"text\" (name the text's field"},
      {"a.jsonl", R"({"text": ["one"]})", {}, "a.jsonl:1: the field \"text\" is not text"},
      {"a.jsonl", "PAR1\x15\x04" + std::string(50, '\0'), {}, "is a Parquet file: convert this file with " + command},
      // JSON.
      {"a.json", one_and_two, both},
      {"a.json.gz", gzipped(one_and_two), both},
      {"a.json", R"({"text": "one"})", {"one"}},
      {"a.json", "{\"text\": \"" + std::string(100'000, 'x') + "\"}", {std::string(100'000, 'x')}},
      {"a.json", array, {}, "is JSON, but its lines are not objects: convert this file with " + command},
      {"a.json", "[\n{\"text\": \"one\"},\n{\"text\": \"two\"}\n]\n", {}, command},
      {"a.json", "{\n  \"text\": \"one\"\n}\n", {}, command},
      {"a.json", "\"one\"", {}, command},
      {"a.json", "one", {}, command},
      {"a.json", "", {}, "1 empty"},
      {"a.json", R"({"data": [{"text": "one"}]})", {}, "a.json:1: no field \"text\""},
      // Forms that prepare does not read.
      {"a.csv", "text\none\n", {}, "is a CSV file: convert this file with " + command},
      {"a.csv.gz", gzipped("text\none\n"), {}, command},
      {"A.CSV", "text\none\n", {}, "is a CSV file: convert this file with " + command},
      {"a.tsv", "text\none\n", {}, command},
      {"a.parquet", "PAR1\x15\x04" + std::string(50, '\0'), {}, "is a Parquet file: convert"},
      {"a.txt", "PAR1 and no byte of 0", {}, "is a Parquet file", true},
      {"a.arrow", "ARROW1\0\0one"s, {}, "is an Arrow file: convert"},
      {"a.feather", "FEA1one", {}, "is an Arrow file: convert"},
      {"a.arrow", "\xFF\xFF\xFF\xFF\x10\x03\0\0one"s, {}, "is an Arrow file: convert"},
      {"a", "\xFF\xFF\xFF\xFFone", {}, "is an Arrow stream", true},
      {"a.npy", "\x93NUMPY\x01\0one"s, {}, "is a NumPy file: convert"},
      {"a.bin", "one", {}, "is a file of numbers: convert"},
      {"a.pdf", "%PDF-1.7\none", {}, "is a PDF: write its text into a .txt file"},
      {"a.txt", "%PDF-1.7\none", {}, "is a PDF", true},
      {"a.db", "SQLite format 3\0one"s, {}, "is an SQLite database"},
      {"a.h5", "\x89HDF\r\n\x1A\none", {}, "is an HDF5 file"},
      {"a.zip", "PK\x03\x04one", {}, "is a ZIP archive: unpack it"},
      {"a.docx", "PK\x03\x04one", {}, "is a ZIP archive"},
      {"a.tar.gz", gzipped("one"), {}, "is a tar archive"},
      {"a.txt.xz",
       "\xFD"
       "7zXZ\0one"s,
       {},
       "is an xz archive"},
      {"a.txt", gzipped("one"), {}, "compressed by gzip: give it a name that ends in .gz", true},
      {"a.txt", zstandard("one"), {}, "compressed by zstd: give it a name that ends in .zst", true},
  };
}

class DataForms : public DataTest {
 protected:
  CorpusSummary prepare(const std::string& input, const std::string& output) {
    const auto tokenizer = make_byte_tokenizer();
    TextOptions how;
    how.tokenizer = tokenizer.get();
    how.document_end = 256;
    list = find_sources({at(input)}, nullptr);
    return prepare_text(list, {at(output), 0, 7}, how, nullptr, nullptr);
  }
  std::vector<std::string> documents(const std::string& name) const {
    std::vector<std::string> texts = texts_of(*TokenFile::open(at(name)), *make_byte_tokenizer());
    std::ranges::sort(texts);
    return texts;
  }
  /// Expects that an input is read as these documents, or refused with one message.
  void expect(const std::string& input, const std::vector<std::string>& read, const std::string& refused_with) {
    if (refused_with.empty()) {
      prepare(input, "out.h5");
      EXPECT_EQ(documents("out.h5"), read);
      return;
    }
    const std::string said = error_of(ExitCode::data, [&] { prepare(input, "out.h5"); });
    EXPECT_TRUE(holds(said, refused_with));
    EXPECT_EQ(std::ranges::count(said, '\n'), 0);
    EXPECT_FALSE(path_exists(at("out.h5")));
  }
  void remove_all() {
    for (const std::string& name : list_directory(folder, ExitCode::data)) fs::remove_all(at(name));
  }
  SourceList list;
};

TEST_F(DataForms, EachIsReadAsWhatItIsOrRefused) {
  for (const Form& form : all_forms()) {
    SCOPED_TRACE(form.name + ": " + form.content.substr(0, 40));
    text(form.name, form.content);
    expect(form.name, form.read, form.refusal);
    remove_all();
    // A folder as on a hub: data files, and a card.
    text("set/.gitattributes", "*.parquet filter=lfs");
    text("set/README.md", "a card");
    text("set/LICENSE", "a license");
    text("set/data/" + form.name, form.content);
    if (!form.text) {
      expect("set", form.read, form.refusal);
      EXPECT_TRUE(!form.refusal.empty() || list.cards == 3) << list.cards;
    } else {  // in a folder of texts, files that are not text are left out and counted
      std::vector<std::string> texts{"*.parquet filter=lfs", "a card", "a license"};
      texts.insert(texts.end(), form.read.begin(), form.read.end());
      std::ranges::sort(texts);
      expect("set", texts, "");
      EXPECT_EQ(list.binary, form.read.empty());
    }
    remove_all();
  }
}

TEST_F(DataForms, InASourceTreeDataFilesAreTextAsAllElse) {
  text("tree/a.py", "print(1)");
  text("tree/package.json", "{\n  \"name\": \"a\"\n}\n");
  text("tree/table.csv", "a,b\n1,2\n");
  text("tree/tests/alone/only.json", "[1, 2]");
  text("tree/README.md", "read me");
  text("tree/lines.jsonl", one_and_two);
  text("tree/table.parquet", "PAR1\x15\x04" + std::string(50, '\0'));
  prepare("tree", "out.h5");
  EXPECT_EQ(documents("out.h5"), (std::vector<std::string>{"[1, 2]", "a,b\n1,2\n", "one", "print(1)", "read me", "two",
                                                           "{\n  \"name\": \"a\"\n}\n"}));
  EXPECT_EQ(list.data_as_text, 3);
  EXPECT_EQ(list.cards, 0);
  EXPECT_EQ(list.binary, 1);
  for (const std::string name : {"package.json", "tests/alone/only.json", "tests/alone"}) {  // reached before, too
    expect_error(ExitCode::data, ".json is JSON", [&] { find_sources({at("tree"), at("tree/" + name)}, nullptr); });
  }
}

TEST_F(DataForms, APatternNamesItsFilesAndSoTheyAreData) {
  text("a1.json", one_and_two);
  text("a2.json", array);
  expect_error(ExitCode::data, "a2.json is JSON", [&] { prepare("a*.json", "out.h5"); });
}

}  // namespace
}  // namespace ringtrain
