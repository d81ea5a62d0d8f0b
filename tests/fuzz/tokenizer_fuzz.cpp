// Fuzzes the readers of tokenizers, whatever their form: any file is a tokenizer or an Error(data). What is accepted
// encodes and decodes the file's own bytes; what goes out of a GGUF file as tokenizer.json is the same tokenizer.
#include "data/tokenizer/tokenizer.h"

#include <optional>

#include "data/tokenizer/formats/gguf_tokenizer.h"
#include "data/tokenizer/formats/tokenizer_json.h"
#include "tests/fuzz/fuzz_file.h"

namespace {

/// Returns what goes out of a GGUF file, nothing if it cannot.
std::optional<nlohmann::json> written(const std::string& path) {
  using namespace ringtrain;
  try {
    return gguf_tokenizer_json(GgufFile::open(path));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

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
    if (!is_gguf_file(path)) return;
    if (const auto json = written(path)) {
      if (identity_of(read_tokenizer_json(*json, path)) != tokenizer->identity()) std::abort();
    }
  });
  return 0;
}
