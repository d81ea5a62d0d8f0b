// Uses the trainer inside a program: with its own tokens, a message after each step, and its own stopping rule.
#include <ringtrain/train.h>

#include <cstdio>

using namespace ringtrain;

/// Returns documents that count: 3, 8, 13, ... of 32 numbers, so that everything except their beginnings can be
/// learned.
std::unique_ptr<TokenFile> counting(const std::string& name) {
  MemoryTokens data{.vocab_size = 33, .tokens = {}, .offsets = {0}, .validation_documents = 32};
  for (std::int32_t document = 0; document < 256; ++document) {
    for (std::int32_t i = 0; i < 63; ++i) data.tokens.push_back((7 * document + (document % 5 + 1) * i) % 32);
    data.tokens.push_back(32);  // the end of each document
    data.offsets.push_back(static_cast<std::int64_t>(data.tokens.size()));
  }
  return tokens_in_memory(name, std::move(data));
}

int main(int argc, char** argv) try {
  if (argc != 3) fail(ExitCode::usage, "usage: train_example CONFIG FOLDER");
  Launcher launcher = Launcher::from_environment();
  double loss = 0;
  TrainOptions options;
  options.config = read_config(argv[1], {}, ConfigUse::run, check_model);
  options.output = argv[2];
  options.start.resume = true;  // if the folder has a run
  options.open_tokens = counting;
  options.callbacks.step = [&](const StepReport& report) { loss = report.loss; };
  options.callbacks.evaluation = [&](std::int64_t step, const std::vector<LengthResult>& results) {
    std::printf("step %d: perplexity %.2f\n", static_cast<int>(step), results.back().perplexity);
  };
  options.callbacks.checkpoint = [](std::int64_t, const std::string& folder) { std::printf("%s\n", folder.c_str()); };
  options.callbacks.stop = [&](std::int64_t) { return loss < 0.5; };
  const Log log = [&](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  const ExitCode code = train(prepare_run(options, log, launcher), log, launcher);
  launcher.finish(static_cast<int>(code));
  return static_cast<int>(code);
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.code());
}
