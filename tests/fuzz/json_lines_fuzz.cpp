// Fuzzes the reader of JSONL, plain and compressed: any file is documents or an Error(data), and any line is texts or
// an exception that describes the problem.
#include "data/preparation/data_forms.h"
#include "data/preparation/json_documents.h"
#include "data/preparation/text_blocks.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "framework/storage/hash.h"
#include "tests/fuzz/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace ringtrain;
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  static const std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer();
  for (const std::string name : {"/lines.jsonl", "/lines.jsonl.gz", "/lines.jsonl.zst", "/text.gz", "/data.json"}) {
    const std::string path = fuzz::folder() + name;
    fuzz::write(path, text);
    fuzz::accepted(ExitCode::data, [&] {
      const std::vector<Source> sources{
          {path, static_cast<std::int64_t>(bytes), hash_bytes(text), holds_json_lines(path)}};
      const JsonRules rules;
      BlockReader reader(sources, *tokenizer, rules);
      std::size_t total = 0;
      while (const auto block = reader.next()) {
        total += block->text.size();
        if (total > (std::size_t{64} << 20)) break;  // a bomb: bounded, but slow
        if (!block->json) continue;
        std::string line = block->text;
        try {
          take_texts(line, rules);
        } catch (const Error&) {
          std::abort();
        } catch (const std::exception&) {
        }
      }
    });
  }
  return 0;
}
