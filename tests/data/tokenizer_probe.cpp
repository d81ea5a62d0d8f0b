// Writes ids of texts to plain files, to compare them with those of another program (tests/tokenizers/oracle_test.py
// and bench/compare).
//   tokenizer_probe encode TOKENIZER TEXTS IDS [text|parse]
//     TEXTS: documents, each a little-endian uint32 of its bytes, then these; IDS: the same with ids as int32. Also
//     checks that decoding gives the document again, and prints the number of those for which it does not.
//   tokenizer_probe serve
//     reads lines of TOKENIZER, TEXTS, IDS and text|parse, with tabs between, and answers each with a line, once IDS is
//     written: "ok", or the exit code and the sentence that refuses the tokenizer. A text that is refused has -1 for
//     the bytes of its ids.
//   tokenizer_probe time TOKENIZER TEXTS PASSES
//     prints the seconds of each pass over all documents, with one encoder and one thread.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

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

void answer(const std::string& line) {
  std::istringstream parts(line);
  std::string tokenizer, texts, output, special;
  for (std::string* part : {&tokenizer, &texts, &output, &special}) std::getline(parts, *part, '\t');
  const auto loaded = load_tokenizer(tokenizer);
  const auto encoder = loaded->make_encoder(special == "parse" ? SpecialTokens::parse : SpecialTokens::text);
  std::ofstream file(output, std::ios::binary);
  for (const std::string& document : read_documents(texts)) {
    std::vector<std::int32_t> ids;
    std::int32_t bytes = -1;
    try {
      encoder->encode(document, ids);
      bytes = static_cast<std::int32_t>(ids.size() * 4);
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
      ids.clear();
    }
    file.write(reinterpret_cast<const char*>(&bytes), 4);
    file.write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(ids.size() * 4));
  }
}

int serve() {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      answer(line);
      std::printf("ok\n");
    } catch (const Error& error) {
      std::string sentence = error.what();
      for (char& c : sentence) c = c == '\n' ? ' ' : c;
      std::printf("%d %s\n", static_cast<int>(error.code()), sentence.c_str());
    }
    std::fflush(stdout);
  }
  return 0;
}

int run(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "serve") == 0) return serve();
  if (argc < 5) return 2;
  const std::string mode = argv[1];
  const auto tokenizer = load_tokenizer(argv[2]);
  const std::vector<std::string> documents = read_documents(argv[3]);
  if (mode != "encode") return time(*tokenizer, documents, std::atoi(argv[4]));
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
