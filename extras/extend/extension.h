// Gives a model a longer context: makes token files, reports time and memory, evaluates, trains at half of the new
// length and at all of it, evaluates again, exports, and reports the results. Each part is done once
// (extension_folder.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "extras/extend/extension_folder.h"

namespace ringtrain {

/// The parameters of an extension. Paths are absolute.
struct ExtensionRequest {
  std::string model;  // a Hugging Face folder with a tokenizer
  std::vector<std::string> texts, held_out, short_texts;
  std::string output = "runs/extend";
  std::string hardware;  // "": measure this machine
  std::int64_t to = 0;
  std::int64_t from = 0;     // 0: the model's length
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

/// Does the parts that are not done yet. options: those of the request, as the user gave them. Throws Error: usage
/// (options, a folder of another extension, a file that has changed), and the errors of the commands.
void extend(const ExtensionRequest& request, const OptionValues& options, const CommandRunner& run_command);

}  // namespace ringtrain
