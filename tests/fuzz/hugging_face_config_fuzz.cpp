// Fuzzes the reader of Hugging Face's config.json: any text is a model or an Error, and a model that can be written is
// read back unchanged.
#include "framework/config/config.h"
#include "framework/config/read_config.h"
#include "tests/fuzz/fuzz_file.h"
#include "train/models/hugging_face_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace ringtrain;
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  fuzz::accepted(ExitCode::checkpoint, [&] {
    Config read, again;
    read.model = parse_hugging_face_config(text, "config.json").model;
    std::string written;
    const bool has_class = fuzz::accepted(ExitCode::usage, [&] {
      written = write_hugging_face_config(read.model, {.dtype = "float32", .context_length = 64, .ends = {}});
    });
    if (!has_class) return;
    again.model = parse_hugging_face_config(written, "again").model;
    again.model.max_position_embeddings = read.model.max_position_embeddings;  // if 0: 64
    if (!differences(read, again).empty()) std::abort();
  });
  return 0;
}
