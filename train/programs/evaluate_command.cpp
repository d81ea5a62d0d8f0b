// The command `evaluate`: perplexity of a checkpoint at several context lengths, on the same target tokens.
#include <algorithm>
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
#include "framework/text/text_reader.h"
#include "train/evaluation/checkpoint_evaluation.h"
#include "train/programs/command_line.h"
#include "train/programs/commands.h"
#include "train/programs/program.h"
#include "train/run/run_folder.h"

using namespace ringtrain;

namespace {

constexpr std::int64_t max_ranks = 1024;  // as in a config
constexpr const char* writer = "ringtrain evaluate";
constexpr std::string_view per_token_head = "{\"written_by\":\"ringtrain evaluate --per-token\",";

/// Reads "DATAxSEQUENCE" into the mesh.
void read_mesh(std::string_view text, MeshConfig& mesh) {
  const bool pair = take_pair(text, mesh.data, 'x', mesh.sequence);
  if (pair && mesh.data >= 1 && mesh.sequence >= 1 && mesh.data <= max_ranks && mesh.sequence <= max_ranks) return;
  fail(ExitCode::usage, "--mesh {}: must be DATAxSEQUENCE, two numbers from 1 to {}, e.g. 1x2", text, max_ranks);
}

/// Returns what an output may replace. more: files that are read besides.
OutputRules output_rules(const EvaluationOptions& options, const std::vector<std::string>& more, OutputKind kind,
                         OutputMark mark, bool overwrite) {
  const auto inputs = [options, more] {
    std::vector<std::string> files = files_of_model(options.checkpoint);
    files.insert(files.end(), {options.data, manifest_path(options.data)});
    if (!options.against.empty()) {
      const std::vector<std::string> others = files_of_model(options.against);
      files.insert(files.end(), others.begin(), others.end());
    }
    files.insert(files.end(), more.begin(), more.end());
    return files;
  };
  return {std::move(kind), std::move(mark), OutputInputs::of(inputs), overwrite ? Overwrite::yes : Overwrite::no};
}

/// Returns the scores as lines of JSON; the first one says what they are.
std::string token_lines(const EvaluationSummary& summary, const std::vector<TokenScore>& tokens) {
  std::string text = fmt::format("{}\"data\":{},\"checkpoint\":{},\"target_hash\":\"{}\"}}\n", per_token_head,
                                 json_text(summary.data), json_text(summary.checkpoint), summary.target_hash);
  for (const TokenScore& one : tokens) {
    text += fmt::format("{{\"context_length\":{},\"document\":{},\"index\":{},\"weight\":{},\"nll\":{:.17g}}}\n",
                        one.context_length, one.document, one.index, one.weight, one.nll);
  }
  return text;
}

std::vector<std::string> task_words() {
  std::vector<std::string> words{"all"};
  for (const TaskKind kind : all_tasks) words.emplace_back(name_of(kind));
  return words;
}

int run_evaluate(int argc, char** argv, Launcher& launcher) {
  CommandLine app{
      "Perplexity of a checkpoint at several context lengths. Every length scores the same target tokens: blocks at "
      "ends of contexts inside single documents, or, with --stride, all tokens of those documents. Of a file that the "
      "checkpoint was trained on they lie in its validation part; any other file is scored whole. Prints a table to "
      "stdout.",
      "evaluate"};
  EvaluationOptions options;
  options.request.target_tokens = options.request.target_blocks = EvaluationOptions::of_the_checkpoint;
  std::string mesh = "1x1", output, per_token;
  bool overwrite = false, longppl = false;
  std::string save_path, key_tokens;
  KeyTokenOptions key;
  std::vector<std::string> tasks;
  TaskRequest task;
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
  Layout layout = Layout::zigzag;
  std::vector<std::pair<std::string, Layout>> layouts;
  for (const Layout one : all_layouts) layouts.emplace_back(name_of(one), one);
  auto* layout_option = app.add_choice("--layout", layout, layouts,
                                       "how a sequence is cut among ranks (default: the checkpoint's; else zigzag). "
                                       "Changes the time, not the result");
  auto* target_tokens = app.add_tokens("--target-tokens", options.request.target_tokens, "M",
                                       "tokens that each block scores, at most half of the "
                                       "shortest length (default: the checkpoint's evaluation.target_tokens)")
                            ->check(at_least(1));
  auto* target_blocks =
      app.add_option("--target-blocks", options.request.target_blocks, "N",
                     "blocks, spread over the documents (default: the checkpoint's evaluation.target_blocks)")
          ->check(at_least(1));
  auto* by_position = app.add_flag("--by-position", options.request.by_position,
                                   "also score all predictions of the same windows, in buckets of their position");
  app.add_tokens("--stride", options.request.stride, "N",
                 "score whole documents by windows of the context length that move by N tokens: each token once, "
                 "the document's first excepted; with N the context length, each window's first")
      ->check(at_least(1))
      ->excludes(target_tokens)
      ->excludes(target_blocks)
      ->excludes(by_position);
  app.add_choice<ScoredPart>(
         "--part", options.request.part,
         {{"auto", ScoredPart::automatic}, {"validation", ScoredPart::validation}, {"whole", ScoredPart::whole}},
         "of the file; auto: whole if the checkpoint was not trained on it, else its validation part if it has one")
      ->default_str("auto");
  app.add_option(
         "--set", options.settings, "KEY.PATH=VALUE",
         "change a key of the model that leaves its weights as they are, e.g. --set model.rope_scaling.type=yarn; "
         "may be repeated")
      ->allow_extra_args(false);
  app.add_option("--against", options.against, "PATH",
                 "another model with the same tokens: nll and KL divergence of both on the same targets");
  auto* tasks_option =
      app.add_option("--tasks", tasks, "all|TASK,TASK,...",
                     "also long-context tasks at every context length, scored among candidates: all, or some of "
                     "single, multikey, multivalue, multiquery, variables, association")
          ->delimiter(',')
          ->check(one_of(task_words()));
  app.add_option("--task-samples", task.settings.samples, "N", "texts of each task, length and depth")
      ->capture_default_str()
      ->check(within(1, 10000))
      ->needs(tasks_option);
  app.add_option("--task-depths", task.settings.depths, "N", "depths of the needle, from the text's begin to its end")
      ->capture_default_str()
      ->check(within(1, 100))
      ->needs(tasks_option);
  app.add_option("--task-candidates", task.settings.candidates, "N", "candidates of an answer; chance is 1 / N")
      ->capture_default_str()
      ->check(within(2, 100))
      ->needs(tasks_option);
  app.add_option("--task-seed", task.settings.seed, "S", "of the texts: the same seed gives the same texts")
      ->capture_default_str()
      ->needs(tasks_option);
  app.add_flag("--greedy-match", task.greedy, "also tell how often the model's greedy text has the answer")
      ->needs(tasks_option);
  auto* longppl_flag = app.add_flag(
      "--longppl", longppl,
      "also LongPPL: the perplexity of key tokens of the same documents, up to the longest context; names of longppl");
  std::vector<CLI::Option*> contrast{
      app.add_tokens("--trunc-len", key.trunc_len, "N", "tokens of a short context; the first ones are never key")
          ->capture_default_str()
          ->check(at_least(1))
          ->needs(longppl_flag),
      app.add_tokens("--sliding-window", key.sliding_window, "N", "tokens that a short window scores")
          ->capture_default_str()
          ->check(at_least(1))
          ->needs(longppl_flag),
      app.add_real("--alpha", key.alpha, RealRange::any(), "NATS", "a key token's nll falls by more than that")
          ->capture_default_str()
          ->needs(longppl_flag),
      app.add_real("--beta", key.beta, RealRange::any(), "NATS", "a key token's log probability is above that")
          ->capture_default_str()
          ->needs(longppl_flag)};
  auto* save_path_option = app.add_option("--save-path", save_path, "FILE.json",
                                          "write the key tokens, so that other models are scored on them; replaces a "
                                          "former file of this kind")
                               ->needs(longppl_flag);
  auto* key_tokens_option =
      app.add_option("--key-tokens", key_tokens, "FILE.json", "score the key tokens of a file of --save-path")
          ->needs(longppl_flag)
          ->excludes(save_path_option);
  for (CLI::Option* const one : contrast) key_tokens_option->excludes(one);
  app.add_computation(options);
  auto* output_option = app.add_option("--output", output, "FILE.json",
                                       "write the results as JSON, too; replaces those of a former evaluation");
  auto* per_token_option =
      app.add_option("--per-token", per_token, "FILE.jsonl",
                     "write the score of every token, a line of JSON each; replaces a former file of this kind");
  app.add_flag("--overwrite", overwrite,
               "let --output, --per-token and --save-path replace any file that this evaluation does not read");
  if (!parse_command_line(app, argc, argv, launcher.is_rank_zero())) return 0;

  read_mesh(mesh, options.mesh);
  if (layout_option->count() > 0) options.layout = layout;
  check_context_lengths(options.request.context_lengths, "--context-lengths");
  std::vector<std::string> more;
  for (const TaskKind kind : all_tasks) {
    if (std::ranges::count(tasks, name_of(kind)) + std::ranges::count(tasks, "all") > 0) task.kinds.push_back(kind);
  }
  if (!task.kinds.empty()) options.tasks = task;
  if (longppl) options.longppl = LongPplRequest{key, std::nullopt};
  if (key_tokens_option->count() > 0) {
    options.longppl->given = read_key_set(key_tokens);
    more.push_back(key_tokens);
  }
  std::optional<OutputFile> file, token_file, set_file;
  if (output_option->count() > 0 && launcher.is_rank_zero()) {
    file.emplace(
        output,
        output_rules(options, more, {"the results of an evaluation", "--output"}, OutputMark::json(writer), overwrite),
        ExitCode::usage);
  }
  const bool wants_tokens = per_token_option->count() > 0;
  if (wants_tokens && launcher.is_rank_zero()) {
    token_file.emplace(per_token,
                       output_rules(options, more, {"the scores of an evaluation's tokens", "--per-token"},
                                    OutputMark::begins(per_token_head), overwrite),
                       ExitCode::usage);
  }
  if (save_path_option->count() > 0 && launcher.is_rank_zero()) {
    set_file.emplace(save_path,
                     output_rules(options, more, {"the key tokens of an evaluation", "--save-path"},
                                  OutputMark::begins(key_set_head), overwrite),
                     ExitCode::usage);
  }
  std::optional<HashProgress> hashing;
  if (launcher.is_rank_zero()) hashing.emplace("evaluate");
  std::vector<TokenScore> tokens;
  const EvaluationSummary summary = evaluate_checkpoint(options, launcher, wants_tokens ? &tokens : nullptr);
  if (!launcher.is_rank_zero()) return 0;
  print_result(evaluation_table(summary));
  if (file) {
    file->file().write(marked_json(writer, json_text(evaluation_json(summary), 2)) + "\n");
    file->publish();
  }
  if (token_file) {
    token_file->file().write(token_lines(summary, tokens));
    token_file->publish();
  }
  if (set_file) {
    set_file->file().write(key_set_text(summary.longppl->set));
    set_file->publish();
  }
  return 0;
}

}  // namespace

int ringtrain::evaluate_command(int argc, char** argv) {
  return run_rank_program("evaluate", [&](Launcher& launcher) { return run_evaluate(argc, argv, launcher); });
}
