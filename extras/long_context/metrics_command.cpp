// The flags of --against, --tasks, and --longppl.
#include "train/programs/metric_flags.h"

#include <algorithm>
#include <string>
#include <vector>

#include "extras/long_context/comparison.h"
#include "extras/long_context/long_perplexity.h"
#include "extras/long_context/task_scores.h"

namespace ringtrain {

namespace {

/// The metrics that the flags request.
struct AskedMetrics {
  std::string against;
  std::vector<std::string> tasks;
  TaskRequest task;
  bool longppl = false;
  LongPplRequest key;
};

void add_tasks(CommandLine& app, AskedMetrics& asked) {
  std::vector<std::string> words{"all"};
  for (const TaskKind kind : all_tasks) words.emplace_back(name_of(kind));
  auto* const tasks = app.add_option("--tasks", asked.tasks, "all|TASK,TASK,...",
                                     "also run multiple-choice long-context tasks at every length: all, or some of "
                                     "single, multikey, multivalue, multiquery, variables, association")
                          ->delimiter(',')
                          ->check(one_of(words));
  const auto add_count = [&](const char* name, std::int64_t& value, const CLI::Validator& range, const char* help) {
    app.add_option(name, value, "N", help)->capture_default_str()->check(range)->needs(tasks);
  };
  TaskSettings& settings = asked.task.settings;
  add_count("--task-samples", settings.samples, within(1, 10000), "number of texts of each task, length, and depth");
  add_count("--task-depths", settings.depths, within(1, 100), "number of depths of the needle, spread evenly");
  add_count("--task-candidates", settings.candidates, within(2, 100), "candidates for an answer; chance is 1 / N");
  app.add_option("--task-seed", settings.seed, "S", "seed for the texts: the same seed gives the same texts")
      ->capture_default_str()
      ->needs(tasks);
  app.add_flag("--greedy-match", asked.task.greedy, "also report how often the model's greedy text contains the answer")
      ->needs(tasks);
}

void add_long_perplexity(CommandLine& app, AskedMetrics& asked) {
  auto* const longppl = app.add_flag("--longppl", asked.longppl,
                                     "also compute LongPPL: perplexity of key tokens, up to the longest context");
  KeyTokenOptions& key = asked.key.options;
  const std::vector<CLI::Option*> contrast{
      app.add_tokens("--trunc-len", key.trunc_len, "N",
                     "LongPPL: length of the short context; the first N tokens of a text are never key tokens")
          ->check(at_least(1)),
      app.add_tokens("--sliding-window", key.sliding_window, "N", "LongPPL: tokens that a short window scores")
          ->check(at_least(1)),
      app.add_real("--alpha", key.alpha, number<double>(), "NATS", "LongPPL: a key token's nll falls by over this"),
      app.add_real("--beta", key.beta, number<double>(), "NATS",
                   "LongPPL: a key token's log probability is above this")};
  auto* const save_path = app.add_option("--save-path", asked.key.save_path, "FILE.json",
                                         "LongPPL: write the key tokens for other models; replaces an earlier file")
                              ->needs(longppl);
  auto* const key_tokens = app.add_option("--key-tokens", asked.key.key_tokens, "FILE.json",
                                          "LongPPL: score the key tokens of a file of --save-path")
                               ->needs(longppl)
                               ->excludes(save_path);
  for (CLI::Option* const option : contrast) key_tokens->excludes(option->capture_default_str()->needs(longppl));
}

std::vector<EvaluationMetric> metrics_of(const AskedMetrics& asked) {
  std::vector<EvaluationMetric> metrics;
  if (!asked.against.empty()) metrics.push_back(against_model(asked.against));
  if (asked.longppl) metrics.push_back(long_perplexity(asked.key));
  TaskRequest task = asked.task;
  const auto names = [&](const char* word) { return std::ranges::count(asked.tasks, word) > 0; };
  for (const TaskKind kind : all_tasks) {
    if (names(name_of(kind)) || names("all")) task.kinds.push_back(kind);
  }
  if (!task.kinds.empty()) metrics.push_back(long_context_tasks(task));
  return metrics;
}

}  // namespace

std::function<std::vector<EvaluationMetric>()> add_metric_flags(CommandLine& app) {
  const auto asked = std::make_shared<AskedMetrics>();
  app.add_option("--against", asked->against, "PATH",
                 "another model with the same tokenizer: nll and KL divergence of both on the same targets");
  add_tasks(app, *asked);
  add_long_perplexity(app, *asked);
  return [asked] { return metrics_of(*asked); };
}

}  // namespace ringtrain
