// Fuzzes the whole path of an external model: any folder of a config.json and a model.safetensors generates a few
// tokens or is refused with an Error. The readers by themselves would not show the effect of their numbers on later
// tables. An input is config.json, a zero byte, and the safetensors file.
#include <filesystem>

#include "parallel/launch/launch.h"
#include "tests/fuzz/fuzz_file.h"
#include "train/generation/checkpoint_generation.h"

namespace {

using namespace ringtrain;

/// Writes the input as a model. Returns its path.
std::string write_model(const std::string& input) {
  std::string folder = fuzz::folder() + "/model";
  std::filesystem::create_directory(folder);
  const std::size_t end = std::min(input.find('\0'), input.size());
  fuzz::write(folder + "/config.json", input.substr(0, end));
  fuzz::write(folder + "/model.safetensors", input.substr(std::min(end + 1, input.size())));
  return folder;
}

/// Generates with every option that an id passes through. Ends the process as a finding if that ends with an Error that
/// is not about the model, its tokenizer, or the request.
void say(const GenerationOptions& options) {
  try {
    Launcher threads;
    generate_from_checkpoint(options, threads, [](std::string_view) {});
  } catch (const Error& error) {
    const ExitCode code = error.code();
    if (code == ExitCode::usage || code == ExitCode::data || code == ExitCode::checkpoint ||
        code == ExitCode::numeric) {
      return;
    }
    std::fprintf(stderr, "an Error of code %d: %s\n", static_cast<int>(code), error.what());
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  GenerationOptions options;
  options.checkpoint = write_model(std::string(reinterpret_cast<const char*>(data), bytes));
  options.max_new_tokens = 3;
  options.threads_per_rank = 1;
  options.sequence_ranks = bytes % 2 == 0 ? 1 : 2;
  options.sampling = {.temperature = 1, .top_k = 5, .repetition_penalty = 1.5};
  options.tokens = {0, 1};
  say(options);
  options.begin_token = true;
  say(options);
  options.tokens.clear();
  options.prompt = "an odd text";
  options.begin_token = false;
  say(options);
  return 0;
}
