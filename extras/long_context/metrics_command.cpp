// The flags of --against, --tasks, and --longppl.
#include "train/programs/metric_flags.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "extras/long_context/comparison.h"
#include "extras/long_context/long_perplexity.h"
#include "extras/long_context/task_scores.h"

namespace ringtrain {

namespace {

std::vector<std::string> task_words() {
  std::vector<std::string> words{"all"};
  for (const TaskKind kind : all_tasks) words.emplace_back(name_of(kind));
  return words;
}

class LongContextFlags {
 public:
  explicit LongContextFlags(CommandLine& app) {
    app.add_option("--against", against_, "PATH",
                   "another model with the same tokens: nll and KL divergence of both on the same targets");
    add_tasks(app);
    add_long_perplexity(app);
  }

  std::vector<std::shared_ptr<const EvaluationMetric>> metrics() const {
    std::vector<std::shared_ptr<const EvaluationMetric>> metrics;
    if (!against_.empty()) metrics.push_back(against_model(against_));
    if (longppl_) metrics.push_back(long_perplexity(key_));
    TaskRequest task = task_;
    for (const TaskKind kind : all_tasks) {
      if (std::ranges::count(tasks_, name_of(kind)) + std::ranges::count(tasks_, "all") > 0) task.kinds.push_back(kind);
    }
    if (!task.kinds.empty()) metrics.push_back(long_context_tasks(std::move(task)));
    return metrics;
  }

 private:
  void add_tasks(CommandLine& app) {
    auto* const tasks =
        app.add_option("--tasks", tasks_, "all|TASK,TASK,...",
                       "also long-context tasks at every context length, scored among candidates: all, or some of "
                       "single, multikey, multivalue, multiquery, variables, association")
            ->delimiter(',')
            ->check(one_of(task_words()));
    TaskSettings& settings = task_.settings;
    app.add_option("--task-samples", settings.samples, "N", "texts of each task, length and depth")
        ->capture_default_str()
        ->check(within(1, 10000))
        ->needs(tasks);
    app.add_option("--task-depths", settings.depths, "N", "depths of the needle, from the text's begin to its end")
        ->capture_default_str()
        ->check(within(1, 100))
        ->needs(tasks);
    app.add_option("--task-candidates", settings.candidates, "N", "candidates of an answer; chance is 1 / N")
        ->capture_default_str()
        ->check(within(2, 100))
        ->needs(tasks);
    app.add_option("--task-seed", settings.seed, "S", "of the texts: the same seed gives the same texts")
        ->capture_default_str()
        ->needs(tasks);
    app.add_flag("--greedy-match", task_.greedy, "also tell how often the model's greedy text has the answer")
        ->needs(tasks);
  }

  void add_long_perplexity(CommandLine& app) {
    auto* const longppl = app.add_flag("--longppl", longppl_,
                                       "also LongPPL: the perplexity of key tokens of the same documents, up to the "
                                       "longest context; names of longppl");
    KeyTokenOptions& key = key_.options;
    const std::vector<CLI::Option*> contrast{
        app.add_tokens("--trunc-len", key.trunc_len, "N",
                       "of LongPPL: tokens of a short context; the first ones are never key")
            ->check(at_least(1)),
        app.add_tokens("--sliding-window", key.sliding_window, "N", "of LongPPL: tokens that a short window scores")
            ->check(at_least(1)),
        app.add_real("--alpha", key.alpha, real_number(), "NATS",
                     "of LongPPL: a key token's nll falls by more than that"),
        app.add_real("--beta", key.beta, real_number(), "NATS",
                     "of LongPPL: a key token's log probability is above that")};
    auto* const save_path = app.add_option("--save-path", key_.save_path, "FILE.json",
                                           "of LongPPL: write the key tokens, so that other models are scored on them; "
                                           "replaces an earlier file of this kind")
                                ->needs(longppl);
    auto* const key_tokens = app.add_option("--key-tokens", key_.key_tokens, "FILE.json",
                                            "of LongPPL: score the key tokens of a file of --save-path")
                                 ->needs(longppl)
                                 ->excludes(save_path);
    for (CLI::Option* const one : contrast) key_tokens->excludes(one->capture_default_str()->needs(longppl));
  }

  std::string against_;
  std::vector<std::string> tasks_;
  TaskRequest task_;
  bool longppl_ = false;
  LongPplRequest key_;
};

}  // namespace

std::function<std::vector<std::shared_ptr<const EvaluationMetric>>()> add_metric_flags(CommandLine& app, int /*argc*/,
                                                                                       char** /*argv*/) {
  return std::bind_front(&LongContextFlags::metrics, std::make_shared<LongContextFlags>(app));
}

}  // namespace ringtrain
