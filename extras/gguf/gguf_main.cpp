// The program `gguf`: a model in a GGUF file as a Hugging Face folder, with its tokenizer.
#include <map>
#include <string>

#include "extras/gguf/gguf_model.h"
#include "extras/gguf/gguf_tokenizer.h"
#include "train/programs/export_flags.h"
#include "train/programs/program.h"

using namespace ringtrain;

namespace {

/// Returns the tokenizer's files. One that no tokenizer.json can hold stays behind, which is said.
std::map<std::string, std::string> tokenizer_files(const GgufFile& file) {
  try {
    return gguf_tokenizer_files(file);
  } catch (const Error& error) {
    write_message(stderr, fmt::format("gguf: the tokenizer does not go along: {}\n", error.what()));
    return {};
  }
}

int run(int argc, char** argv) {
  CommandLine app{
      "Makes a Hugging Face folder of a GGUF file: config.json, safetensors, tokenizer and chat template.\n"
      "Example: gguf --input model.gguf --output model",
      "gguf"};
  ExportFlags flags;
  std::string input;
  app.add_option("--input", input, "FILE", "the GGUF file, of architecture llama")->required();
  flags.add_to(app);
  if (!parse_command_line(app, argc, argv)) return 0;

  ExportOptions options = flags.options();
  check_export(input, options);
  const GgufFile file = GgufFile::open(input);
  const ModelSource source = open_gguf_model(file);
  options.tokenizer_files = tokenizer_files(file);
  flags.write("gguf", source, options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("gguf", [&] { return run(argc, argv); });
}
