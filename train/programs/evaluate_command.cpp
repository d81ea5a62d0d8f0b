// The command `evaluate`: perplexity of a checkpoint at several context lengths, on the same target tokens.
#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/token_manifest.h"
#include "framework/output/output_file.h"
#include "framework/profile/hash_progress.h"
#include "framework/standard_streams.h"
#include "framework/storage/strict_json.h"
#include "parallel/shared_error.h"
#include "train/evaluation/checkpoint_evaluation.h"
#include "train/programs/command_line.h"
#include "train/programs/commands.h"
#include "train/programs/metric_flags.h"
#include "train/run/run_folder.h"

using namespace ringtrain;

namespace {

constexpr const char* writer = "ringtrain evaluate";
constexpr std::string_view per_token_head = "{\"written_by\":\"ringtrain evaluate --per-token\",";

struct Arguments {
  EvaluationOptions options;
  std::string output, per_token;  // "": not requested
};

/// Returns the scores as lines of JSON; the first line describes the others.
std::string token_lines(const EvaluationSummary& summary, const std::vector<TokenScore>& tokens) {
  std::string text = fmt::format("{}\"data\":{},\"checkpoint\":{},\"target_hash\":\"{}\"}}\n", per_token_head,
                                 json_text(summary.data), json_text(summary.checkpoint), summary.targets.hash);
  for (const TokenScore& token : tokens) {
    text += fmt::format("{{\"context_length\":{},\"document\":{},\"index\":{},\"weight\":{},\"nll\":{:.17g}}}\n",
                        token.context_length, token.document, token.index, token.weight, token.nll);
  }
  return text;
}

/// Adds the flags that say what to score.
void add_targets(CommandLine& app, EvaluationRequest& request) {
  request.target_tokens = request.target_blocks = EvaluationOptions::of_the_checkpoint;
  auto* const target_tokens =
      app.add_tokens("--target-tokens", request.target_tokens, "M",
                     "tokens that are scored in each block, at most half of the shortest length (default: the "
                     "checkpoint's evaluation.target_tokens, or that half if it is less)")
          ->check(at_least(1));
  auto* const target_blocks =
      app.add_option("--target-blocks", request.target_blocks, "N",
                     "number of blocks, spread over the documents (default: the checkpoint's evaluation.target_blocks)")
          ->check(at_least(1));
  auto* const by_position = app.add_flag("--by-position", request.by_position,
                                         "also score all predictions in the same windows, and group them by position");
  app.add_tokens("--stride", request.stride, "N",
                 "score whole documents with windows of the context length that move by N tokens. Each token is scored "
                 "once, except the first of each document (if N is the context length: of each window)")
      ->check(at_least(1))
      ->excludes(target_tokens)
      ->excludes(target_blocks)
      ->excludes(by_position);
  app.add_choice<ScoredPart>(
         "--part", request.part,
         {{"auto", ScoredPart::automatic}, {"validation", ScoredPart::validation}, {"whole", ScoredPart::whole}},
         "the part of the file to score; auto: all of it if the checkpoint was not trained on it, else its validation "
         "part if it has one")
      ->default_str("auto");
}

/// Reads the command line. Returns false if only help was requested.
bool parse(Arguments& arguments, int argc, char** argv, bool print) {
  CommandLine app{
      "Measure the perplexity of a checkpoint at several context lengths. Every length scores the same target tokens: "
      "blocks, each at the end of a context in one document, or, with --stride, all tokens of whole documents. In a "
      "file that the checkpoint was trained on, or may have been, only the validation part is scored, if it has one; "
      "any other file is scored whole. The table goes to stdout.",
      "evaluate"};
  EvaluationOptions& options = arguments.options;
  std::string mesh = "1x1";
  app.add_option("--checkpoint", options.checkpoint, "PATH",
                 "a run (its newest checkpoint), a checkpoint, or a Hugging Face folder")
      ->required();
  app.add_option("--data", options.data, "FILE", "the token file")->required();
  app.add_tokens("--context-lengths", options.request.context_lengths, "N,N,...",
                 "tokens, ascending, e.g. 512,4096,16K")
      ->required()
      ->delimiter(',');
  app.add_option("--mesh", mesh, "DATAxSEQUENCE", "ranks that share the blocks x ranks that share each sequence")
      ->capture_default_str();
  std::vector<std::pair<std::string, Layout>> layouts;
  for (const Layout layout : all_layouts) layouts.emplace_back(name_of(layout), layout);
  app.add_choice<Layout>(
      "--layout", options.layout, layouts,
      "how a sequence is split among ranks (default: the checkpoint's; else zigzag); changes the time, not the result");
  add_targets(app, options.request);
  add_begin_token(app, options.begin_token, "the token before each window (default: that before the documents)");
  app.add_option("--set", options.settings, "KEY.PATH=VALUE",
                 "change a key of the model that does not affect its weights, e.g. --set model.rope_scaling.type=yarn; "
                 "may be repeated")
      ->allow_extra_args(false);
  const auto metrics = add_metric_flags(app);
  app.add_computation(options);
  app.add_option("--output", arguments.output, "FILE.json",
                 "also write the results as JSON; replaces those of an earlier evaluation");
  app.add_option("--per-token", arguments.per_token, "FILE.jsonl",
                 "write the score of every token as a line of JSON; replaces an earlier file of this kind");
  if (!parse_command_line(app, argc, argv, print)) return false;
  read_mesh(mesh, options.mesh.data, options.mesh.sequence);
  options.metrics = metrics();
  return true;
}

/// Writes a file of an evaluation.
using Output = std::function<void(const EvaluationSummary& summary, const std::vector<TokenScore>& tokens)>;

/// Opens the files that an evaluation writes, before it begins.
std::vector<Output> open_outputs(const Arguments& arguments) {
  std::vector<Output> outputs;
  const auto inputs = [options = arguments.options] {  // no output may overwrite them
    std::vector<std::string> files = files_of_models({options.checkpoint, options.data, manifest_path(options.data)});
    for (const auto& metric : options.metrics) std::ranges::move(metric.inputs(), std::back_inserter(files));
    return files;
  };
  const auto open = [&](const std::string& path, const OutputKind& kind, const OutputMark& mark, auto text) {
    if (path.empty()) return;
    const OutputRules rules(kind, mark, OutputInputs::from(inputs));
    const auto file = std::make_shared<OutputFile>(path, rules, ExitCode::usage);
    outputs.push_back([=](const auto& summary, const auto& tokens) { file->publish(text(summary, tokens)); });
  };
  open(arguments.output, {"an evaluation's result", "--output"}, OutputMark::json(writer),
       [](const EvaluationSummary& summary, const auto& /*tokens*/) {
         return marked_json(writer, json_text(evaluation_json(summary), 2)) + "\n";
       });
  open(arguments.per_token, {"a list of tokens' scores", "--per-token"}, OutputMark::begins(per_token_head),
       token_lines);
  for (std::size_t i = 0; i < arguments.options.metrics.size(); ++i) {
    const std::optional<MetricOutput>& output = arguments.options.metrics[i].output;
    if (!output) continue;
    open(output->path, output->kind, output->mark,
         [i](const EvaluationSummary& summary, const auto& /*tokens*/) { return summary.metrics[i].second.file_text; });
  }
  return outputs;
}

}  // namespace

int ringtrain::evaluate_command(int argc, char** argv, Launcher& launcher) {
  const bool prints = launcher.is_rank_zero();
  Arguments arguments;
  if (!parse(arguments, argc, argv, prints)) return 0;
  std::vector<Output> outputs;
  if (prints) outputs = open_outputs(arguments);
  std::optional<HashProgress> hashing;
  if (prints) hashing.emplace("evaluate");
  std::vector<TokenScore> tokens;
  const EvaluationSummary summary =
      evaluate_checkpoint(arguments.options, launcher, arguments.per_token.empty() ? nullptr : &tokens);
  if (!prints) return 0;
  print_result(evaluation_table(summary));
  std::optional<Error> problem;  // the first write error; all other files are still written
  for (const Output& output : outputs) {
    const auto failure = caught([&] { output(summary, tokens); });
    if (!problem) problem = failure;
  }
  if (problem) throw Error(*problem);
  return 0;
}
