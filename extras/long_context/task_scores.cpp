#include "extras/long_context/task_scores.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "extras/long_context/logits_scores.h"
#include "framework/counted.h"
#include "framework/error.h"
#include "layers/logits_pass.h"
#include "parallel/collectives.h"
#include "train/models/model_tokenizer.h"

namespace ringtrain {

namespace {

constexpr std::int64_t values_per_trial = 3;  // nll of its tokens, right, tokens that are not the likeliest

/// Returns 1 if the first candidate is the likeliest, or 1 / n if it ties with n - 1 others.
template <class S>
double right_of(const S* row, const std::vector<std::int32_t>& candidates) {
  const auto right_logit = widened(row[candidates.front()]);
  std::int64_t alike = 0;
  for (const std::int32_t candidate : candidates) {
    const auto other = widened(row[candidate]);
    if (other > right_logit) return 0;
    alike += other == right_logit ? 1 : 0;
  }
  return 1.0 / static_cast<double>(alike);
}

/// Collective over the ring. Scores the text in state.batch: consecutive rows go through the head together. values:
/// values_per_trial for each trial of all texts.
void score_text(RankState& state, const TaskSamples& samples, std::int64_t text, std::vector<double>& values) {
  const LogitsPass pass = state.model->begin_logits(state.batch);
  const auto trials = std::ranges::equal_range(samples.trials, text, {}, &TaskTrial::text);
  const auto* const labels = state.batch.labels().as<std::int32_t>();
  const auto* const positions = state.batch.positions().as<std::int32_t>();
  for (std::int64_t begin = 0, end = 0; begin < state.batch.T; begin = std::max(end, begin + 1)) {
    if (labels[begin] < 0) continue;
    const std::int64_t most = std::min(begin + pass.most_rows, state.batch.T);
    end = begin + 1;
    while (end < most && labels[end] >= 0) ++end;
    const TensorView logits = pass.rows(begin, end);
    const std::int64_t V = logits.dim(1);
    dispatch_dtype(logits.dtype, [&]<class S, class>() {
      for (std::int64_t t = begin; t < end; ++t) {
        const S* const row = logits.as<S>() + (t - begin) * V;
        const std::int64_t token = positions[t] + 1;  // which the row predicts
        for (const TaskTrial& trial : trials) {
          if (token < trial.first || token >= trial.first + trial.tokens) continue;
          double* const to = values.data() + (&trial - samples.trials.data()) * values_per_trial;
          to[0] += log_sum_exp(row, V) - static_cast<double>(widened(row[labels[t]]));
          if (token == trial.decisive) to[1] = right_of(row, trial.candidates);
          const auto likeliest = std::ranges::max_element(row, row + V, {}, [](auto x) { return widened(x); }) - row;
          if (likeliest != labels[t]) to[2] += 1;
        }
      }
    });
  }
}

/// Returns the sums of all trials by task, length, and depth.
std::vector<TaskResult> results_of(const TaskSamples& samples, const std::vector<double>& values) {
  const std::vector<TaskCell> row(static_cast<std::size_t>(samples.settings.depths));
  std::vector<TaskResult> results;
  for (const TaskKind kind : samples.kinds) results.push_back({kind, std::vector(samples.lengths.size(), row), {}});
  for (std::size_t i = 0; i < samples.trials.size(); ++i) {
    const TaskTrial& trial = samples.trials[i];
    const double* const from = values.data() + i * values_per_trial;
    const TaskCell cell{1, from[1], from[2] == 0 ? 1.0 : 0.0, from[0], static_cast<double>(trial.tokens)};
    if (!std::isfinite(cell.nll)) {
      fail(ExitCode::numeric,
           "--tasks: in task {} at context length {}, a loss is {}: damaged weights, or an overflow (try float32)",
           name_of(samples.kinds[trial.task]), samples.lengths[trial.length], cell.nll);
    }
    results[trial.task].cells[trial.length][trial.depth] += cell;
    results[trial.task].all += cell;
  }
  return results;
}

class PreparedTasks : public PreparedMetric {
 public:
  PreparedTasks(TaskSamples samples, bool greedy) : samples_(std::move(samples)), greedy_(greedy) {}
  std::string identity() const override { return samples_.tokens->hash(); }
  std::int64_t sequences() const override { return std::ssize(samples_.spans); }
  MetricResult evaluate(RankState& state, TargetScorer* /*scorer*/,
                        const std::function<void(std::int64_t)>& progress) const override {
    const TaskSummary summary = evaluate_tasks(state, samples_, greedy_, progress);
    return {std::make_shared<const nlohmann::ordered_json>(tasks_json(summary)), task_tables(summary), {}};
  }

 private:
  const TaskSamples samples_;
  const bool greedy_;
};

}  // namespace

TaskCell& TaskCell::operator+=(const TaskCell& other) {
  trials += other.trials;
  right += other.right;
  exact += other.exact;
  nll += other.nll;
  tokens += other.tokens;
  return *this;
}

double deviations(const TaskCell& cell, double chance) {
  return (cell.right - cell.trials * chance) / std::sqrt(cell.trials * chance * (1 - chance));
}

TaskSummary evaluate_tasks(RankState& state, const TaskSamples& samples, bool greedy,
                           const std::function<void(std::int64_t tokens)>& progress) {
  std::vector<double> values(samples.trials.size() * values_per_trial, 0.0);  // each from the rank that has the tokens
  const auto pass = [&](std::int64_t text) {
    score_text(state, samples, text, values);
    if (progress) progress(samples.spans[text].length);
  };
  for_each_span(state, *samples.tokens, samples.spans, {pass, [&] { state.model->evaluate_nothing(); }, {}, "tasks"});
  all_reduce_sum(*state.world, std::span<double>(values), {"tasks of an evaluation"});
  return {&samples, greedy, results_of(samples, values)};
}

nlohmann::ordered_json tasks_json(const TaskSummary& summary) {
  const TaskSettings& settings = summary.samples->settings;
  const auto with_numbers = [&](nlohmann::ordered_json json, const TaskCell& cell) {
    json["trials"] = std::llround(cell.trials);
    json["accuracy"] = cell.right / cell.trials;
    json["nll"] = cell.nll / cell.tokens;
    if (summary.greedy) json["greedy_match"] = cell.exact / cell.trials;
    return json;
  };
  nlohmann::ordered_json json{{"chance", summary.chance()},
                              {"candidates", settings.candidates},
                              {"seed", settings.seed},
                              {"samples", settings.samples},
                              {"depths", nlohmann::ordered_json::array()},
                              {"results", nlohmann::ordered_json::array()}};
  for (std::int64_t depth = 0; depth < settings.depths; ++depth) json["depths"].push_back(depth_share(settings, depth));
  for (const TaskResult& task : summary.tasks) {
    nlohmann::ordered_json row = with_numbers({{"task", name_of(task.kind)}}, task.all);
    row["deviations_from_chance"] = deviations(task.all, summary.chance());
    for (std::size_t i = 0; i < task.cells.size(); ++i) {
      for (std::size_t depth = 0; depth < task.cells[i].size(); ++depth) {
        if (task.cells[i][depth].trials == 0) continue;
        row["cells"].push_back(with_numbers({{"context_length", summary.samples->lengths[i]},
                                             {"depth", depth_share(settings, static_cast<std::int64_t>(depth))}},
                                            task.cells[i][depth]));
      }
    }
    json["results"].push_back(std::move(row));
  }
  return json;
}

std::string task_tables(const TaskSummary& summary) {
  const TaskSettings& settings = summary.samples->settings;
  std::string text =
      fmt::format("\nTasks: correct answers in % (the answer is the likeliest of {} candidates; chance is {:.1f}%)\n",
                  settings.candidates, 100 * summary.chance());
  std::string head = fmt::format("{:>9}", "context");
  for (std::int64_t depth = 0; depth < settings.depths; ++depth) {
    head += fmt::format("  {:>7}", fmt::format("{:.0f}%", 100 * depth_share(settings, depth)));
  }
  for (const TaskResult& task : summary.tasks) {
    const TaskCell& all = task.all;
    text += fmt::format("\n{}: {:.1f}% of {}, {:+.1f} standard deviations from chance; nll of answers {:.4f}",
                        name_of(task.kind), 100 * all.right / all.trials, counted(std::llround(all.trials), "answer"),
                        deviations(all, summary.chance()), all.nll / all.tokens);
    if (summary.greedy) text += fmt::format("; greedy decoding gives {:.1f}%", 100 * all.exact / all.trials);
    text += fmt::format("\n{} | nll of the answers\n", head);
    for (std::size_t i = 0; i < task.cells.size(); ++i) {
      std::string rights = fmt::format("{:>9}", summary.samples->lengths[i]), nlls;
      for (const TaskCell& cell : task.cells[i]) {
        rights +=
            fmt::format("  {:>7}", cell.trials == 0 ? "-" : fmt::format("{:.0f}", 100 * cell.right / cell.trials));
        nlls += fmt::format("  {:>7}", cell.trials == 0 ? "-" : fmt::format("{:.3f}", cell.nll / cell.tokens));
      }
      text += fmt::format("{} |{}\n", rights, nlls);
    }
  }
  return text + "\ncolumns: the depth of the needle in the text; nll: nats per token, of the answers only\n";
}

EvaluationMetric long_context_tasks(const TaskRequest& request) {
  const auto prepare = [request](const EvaluationSubject& subject) {
    const std::int64_t vocab_size = subject.config.model.vocab_size;
    if (subject.config.training.device == Device::Kind::cuda) {
      fail(ExitCode::usage, "--tasks: candidates are compared on the CPU; give --device cpu");
    }
    const std::unique_ptr<Tokenizer> tokenizer = load_model_tokenizer(subject.source);
    if (!tokenizer) fail(ExitCode::usage, "--tasks: {} has no tokenizer to write texts with", subject.source.path);
    if (tokenizer->vocab_size() > vocab_size) {
      fail(ExitCode::usage, "--tasks: the tokenizer of {} has {} tokens, but the model's vocabulary has {}",
           subject.source.path, tokenizer->vocab_size(), vocab_size);
    }
    const EvaluationRequest& targets = subject.targets.request;
    return std::make_unique<PreparedTasks>(make_task_samples(request.kinds, targets.context_lengths, request.settings,
                                                             *tokenizer, vocab_size, targets.begin_token),
                                           request.greedy);
  };
  return {.name = "tasks", .prepare = prepare};
}

}  // namespace ringtrain
