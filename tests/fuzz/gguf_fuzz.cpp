// Fuzzes what `gguf` makes of a file: any bytes are a header with tensors within the file, a model with weights and a
// tokenizer, or each of these is an Error(checkpoint) or Error(data). A tokenizer.json that is made can be read.
#include <nlohmann/json.hpp>

#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/formats/tokenizer_json.h"
#include "extras/gguf/gguf_model.h"
#include "extras/gguf/gguf_tokenizer.h"
#include "layers/model_parameters.h"
#include "tests/fuzz/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace ringtrain;
  const std::string text(reinterpret_cast<const char*>(data), bytes), path = fuzz::folder() + "/model.gguf";
  fuzz::write(path, text);
  std::optional<GgufFile> file;
  fuzz::accepted(ExitCode::checkpoint, [&] {
    file = GgufFile::open(path);
    for (const auto& [name, tensor] : file->tensors()) {
      if (tensor.offset < 0 || tensor.offset + tensor.bytes > static_cast<std::int64_t>(bytes)) std::abort();
    }
    file->find<std::int64_t>("general.alignment");
  });
  if (!file) return 0;
  fuzz::accepted(ExitCode::checkpoint, [&] {
    const ModelSource source = open_gguf_model(*file);
    const ParameterTable table = make_parameter_table(source.model);
    const auto weights = source.open_weights();
    for (const Parameter& parameter : table.all()) {
      double last = 0;
      weights->read(parameter, parameter.shape.numel() - 1, host_view(&last, {1}));
    }
  });
  fuzz::accepted(ExitCode::data, [&] {
    std::optional<nlohmann::json> made;
    if (!fuzz::accepted(ExitCode::data, [&] { made = gguf_tokenizer_json(*file); })) return;
    const BpeTokenizer tokenizer(read_tokenizer_json(*made, path));
    for (const std::int32_t id : tokenizer.encode(text.substr(0, 4096))) {
      if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
    }
  });
  return 0;
}
