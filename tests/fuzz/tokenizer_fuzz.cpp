// Fuzzes the reader of tokenizers: any file is a tokenizer or an Error(data). An accepted tokenizer encodes and decodes
// the file's own bytes.
#include "data/tokenizer/tokenizer.h"

#include "tests/fuzz/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace ringtrain;
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  const std::string path = fuzz::folder() + "/tokenizer";
  fuzz::write(path, text);
  fuzz::accepted(ExitCode::data, [&] {
    const auto tokenizer = load_tokenizer(path);
    for (const SpecialTokens special : {SpecialTokens::text, SpecialTokens::parse}) {
      const std::vector<std::int32_t> ids = tokenizer->encode(text.substr(0, 4096), special);
      for (const std::int32_t id : ids) {
        if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
      }
      tokenizer->decode(ids);
    }
    if (tokenizer->find_cut(text) > text.size()) std::abort();
  });
  return 0;
}
