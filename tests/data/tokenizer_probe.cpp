// Ids of texts as plain files, for whoever compares them with another program's (tests/tokenizers/oracle_test.py and
// bench/compare).
//   tokenizer_probe encode TOKENIZER TEXTS IDS [text|parse] [PATTERN]
//     TEXTS: documents, each a little-endian uint32 of its bytes, then these; IDS: the same with ids as int32. Also
//     checks that decoding gives the document again, and prints the number of those for which it does not.
//   tokenizer_probe time TOKENIZER TEXTS PASSES [PATTERN]
//     prints the seconds of each pass over all documents, with one encoder and one thread.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "data/tokenizer/tokenizer.h"
#include "framework/error.h"

namespace ringtrain {
namespace {

std::vector<std::string> read_documents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> documents;
  for (std::size_t at = 0; at + 4 <= all.size();) {
    std::uint32_t bytes = 0;
    std::memcpy(&bytes, all.data() + at, 4);
    documents.push_back(all.substr(at + 4, bytes));
    at += 4 + bytes;
  }
  return documents;
}

int encode(const Tokenizer& tokenizer, const std::vector<std::string>& documents, const std::string& output,
           SpecialTokens special) {
  const std::unique_ptr<Encoder> encoder = tokenizer.make_encoder(special);
  std::ofstream file(output, std::ios::binary);
  std::int64_t changed = 0;
  std::vector<std::int32_t> ids;
  for (const std::string& document : documents) {
    ids.clear();
    encoder->encode(document, ids);
    changed += tokenizer.decode(ids) != document;
    const auto bytes = static_cast<std::uint32_t>(ids.size() * 4);
    file.write(reinterpret_cast<const char*>(&bytes), 4);
    file.write(reinterpret_cast<const char*>(ids.data()), bytes);
  }
  std::printf("%lld\n", static_cast<long long>(changed));
  return file.flush() ? 0 : 1;
}

int time(const Tokenizer& tokenizer, const std::vector<std::string>& documents, int passes) {
  const std::unique_ptr<Encoder> encoder = tokenizer.make_encoder(SpecialTokens::text);
  std::vector<std::int32_t> ids;
  for (int pass = 0; pass < passes; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    for (const std::string& document : documents) {
      ids.clear();
      encoder->encode(document, ids);
    }
    std::printf("%.6f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return 0;
}

int run(int argc, char** argv) {
  if (argc < 5) return 2;
  const std::string mode = argv[1];
  const bool encoding = mode == "encode";
  const int pattern = encoding ? 6 : 5;
  const auto tokenizer = load_tokenizer(argv[2], {argc > pattern ? argv[pattern] : ""});
  const std::vector<std::string> documents = read_documents(argv[3]);
  if (!encoding) return time(*tokenizer, documents, std::atoi(argv[4]));
  const bool parse = argc > 5 && std::strcmp(argv[5], "parse") == 0;
  return encode(*tokenizer, documents, argv[4], parse ? SpecialTokens::parse : SpecialTokens::text);
}

}  // namespace
}  // namespace ringtrain

int main(int argc, char** argv) {
  try {
    return ringtrain::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
