// Gives a model a longer context: makes token files, says time and memory, evaluates, trains at half of the new length
// and at all of it, evaluates again, exports, and shows what came of it. Each part is done once (extension_folder.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "extras/extend/extension_folder.h"

namespace ringtrain {

/// What an extension is asked for. Paths begin at the root.
struct ExtensionRequest {
  std::string model;  // a Hugging Face folder with a tokenizer
  std::vector<std::string> texts, held_out, short_texts;
  std::string output = "runs/extend";
  std::string hardware;  // "": this machine is measured
  std::int64_t to = 0;
  std::int64_t from = 0;     // 0: what the model knows
  double theta = 0;          // 0: YaRN
  double short_share = 0.2;  // of the sequences
  std::int64_t ring = 2, half_steps = 2, steps = 10;
  double lr = 1e-4;
  std::int64_t blocks = 20, long_blocks = 4;  // evaluated windows of an eighth of `to`, and of more
  std::int64_t needles = 2;
  bool plan_only = false;
};

/// Runs a command of this program, whose name is the first word. Throws Error unless it ends with 0.
using CommandRunner = std::function<void(const std::vector<std::string>& words)>;

/// Does what is not done yet. options: those of the request as the user gave them. Throws Error: usage (options, a
/// folder of another extension, a file that has changed), and what the commands end with.
void extend(const ExtensionRequest& request, const OptionValues& options, const CommandRunner& run_command);

}  // namespace ringtrain
