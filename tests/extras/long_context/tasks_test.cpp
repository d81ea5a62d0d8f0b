// Long-context tasks: the structure of their texts, the answer tokens, scoring of candidates, chance, meshes.
#include <cctype>
#include <cmath>
#include <set>
#include <sstream>
#include <utility>

#include "data/loader.h"
#include "extras/long_context/task_samples.h"
#include "extras/long_context/task_scores.h"
#include "layers/logits_pass.h"
#include "tests/train/evaluation/evaluation_fixture.h"

namespace ringtrain::testing {
namespace {

std::set<std::string> words_of(const std::string& text) {
  std::set<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (std::isalpha(static_cast<unsigned char>(c))) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!word.empty()) {
      words.insert(std::exchange(word, ""));
    }
  }
  return words;
}

std::int64_t times(const std::string& text, const std::string& part) {
  std::int64_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Numbers of needles and answers as in RULER's niah_single, niah_multikey, niah_multivalue, niah_multiquery and vt.
TEST(TaskTexts, HaveRulersStructure) {
  const TaskSettings settings;
  const std::map<TaskKind, std::pair<std::size_t, std::size_t>> needles_and_answers{
      {TaskKind::single, {1, 1}},     {TaskKind::multikey, {4, 1}},  {TaskKind::multivalue, {4, 4}},
      {TaskKind::multiquery, {4, 4}}, {TaskKind::variables, {5, 5}}, {TaskKind::association, {4, 1}}};
  for (const TaskKind kind : all_tasks) {
    for (std::int64_t depth = 0; depth < settings.depths; ++depth) {
      for (std::int64_t sample = 0; sample < 6; ++sample) {
        const TaskText text = make_task(kind, settings, 4096, depth, sample);
        EXPECT_EQ(text.needles.size(), needles_and_answers.at(kind).first) << name_of(kind);
        EXPECT_EQ(text.answers.size(), needles_and_answers.at(kind).second) << name_of(kind);
        const std::string prompt = prompt_of(text, settings, 400, 7);
        EXPECT_TRUE(prompt.starts_with(text.opening));
        EXPECT_TRUE(prompt.ends_with(text.question));
        const auto body = static_cast<double>(prompt.size() - text.opening.size() - text.question.size());
        std::size_t before = 0;
        bool wanted = false;
        for (const Needle& needle : text.needles) {
          EXPECT_EQ(times(prompt, needle.sentence + " "), 1) << needle.sentence;
          const std::size_t at = prompt.find(needle.sentence);
          EXPECT_GT(at, before);
          before = at;
          const double share = (static_cast<double>(at) - static_cast<double>(text.opening.size())) / body;
          EXPECT_NEAR(share, depth_share(settings, needle.depth), 0.04) << name_of(kind);
          wanted |= needle.depth == depth;
        }
        EXPECT_TRUE(wanted);
        for (std::size_t i = 0; i < text.answers.size(); ++i) {
          const TaskAnswer& answer = text.answers[i];
          const std::string right = answer.right.substr(1);
          std::int64_t holders = 0;  // needles at the answer's depth that contain it
          for (const Needle& needle : text.needles) {
            holders += needle.depth == answer.depth && times(needle.sentence, right) > 0 ? 1 : 0;
          }
          EXPECT_GE(holders, 1) << right;
          EXPECT_EQ(std::ranges::count(answer.others, answer.right), 0);
          for (const TaskAnswer& other : text.answers) {
            if (kind == TaskKind::multiquery) continue;
            EXPECT_EQ(std::ranges::count(answer.others, other.right), 0);
          }
        }
        if (text.answers.size() == 1) {
          EXPECT_EQ(text.answers[0].depth, depth);
        }
      }
    }
  }
}

TEST(TaskTexts, ChainsAssignOneVariableFromTheOneBefore) {
  const TaskText text = make_task(TaskKind::variables, {}, 4096, 2, 1);
  std::string value = "";
  for (std::size_t i = 0; i < text.needles.size(); ++i) {
    std::istringstream words(text.needles[i].sentence);
    std::string var, name, equals, from, name_before;
    words >> var >> name >> equals >> from >> name_before;
    EXPECT_EQ(var, "VAR");
    EXPECT_EQ(" " + name, text.answers[i].right);
    if (i == 0) {
      value = from.substr(0, 5);
      EXPECT_NE(text.question.find("the value " + value), std::string::npos);
    } else {
      EXPECT_EQ(" " + name_before, text.answers[i - 1].right + ".");
    }
  }
}

TEST(TaskTexts, AnAssociationsQuestionSharesNoWordWithItsNeedle) {
  for (std::int64_t sample = 0; sample < 200; ++sample) {
    const TaskText text = make_task(TaskKind::association, {}, 1000, sample % 5, sample);
    const std::set<std::string> question = words_of(text.question);
    for (const Needle& needle : text.needles) {
      for (const std::string& word : words_of(needle.sentence)) EXPECT_FALSE(question.contains(word)) << word;
    }
  }
}

TEST(TaskTexts, OnlySeedLengthDepthAndSampleDecide) {
  const auto question = [](std::uint64_t seed, std::int64_t length, std::int64_t depth, std::int64_t sample) {
    TaskSettings settings;
    settings.seed = seed;
    return make_task(TaskKind::single, settings, length, depth, sample).needles[0].sentence;
  };
  EXPECT_EQ(question(1, 100, 2, 3), question(1, 100, 2, 3));
  std::set<std::string> different;
  for (std::int64_t i = 1; i < 4; ++i) {
    different.insert({question(1, 100, 2, 3), question(static_cast<std::uint64_t>(1 + i), 100, 2, 3),
                      question(1, 100 + i, 2, 3), question(1, 100, 2 + i, 3), question(1, 100, 2, 3 + i)});
  }
  EXPECT_EQ(different.size(), 13U);  // four variations, three times, and the original
}

class TasksTest : public TrainTest {
 protected:
  Config config(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> settings{"model.vocab_size=257", "model.initializer_range=0.3"};
    settings.insert(settings.end(), more.begin(), more.end());
    return tiny("none", settings);
  }
  static TaskSamples samples(std::int64_t each, std::vector<std::int64_t> lengths = {1000, 1300},
                             std::optional<std::int32_t> begin_token = {}) {
    TaskSettings settings;
    settings.depths = 3;
    settings.samples = each;
    return make_task_samples(all_tasks, lengths, settings, *load_tokenizer("bytes"), 257, begin_token);
  }
  static void on_random(const Config& config, const std::function<void(RankState&)>& body) {
    on_ranks(config, {1300}, [&](RankState& state) {
      initialize_weights(state.stream, state.parameters, 5);
      body(state);
    });
  }
  static TaskSummary evaluate(const Config& config, const TaskSamples& samples) {
    TaskSummary summary;
    on_random(config, [&](RankState& state) {
      TaskSummary own = evaluate_tasks(state, samples, true, nullptr);
      if (state.rank == 0) summary = std::move(own);
    });
    return summary;
  }
};

class TaskTokens : public TasksTest {
 protected:
  static void expect_filled(std::optional<std::int32_t> begin_token);
};

void TaskTokens::expect_filled(std::optional<std::int32_t> begin_token) {
  const TaskSamples made = samples(2, {1000, 1300}, begin_token);
  const auto bytes = load_tokenizer("bytes");
  const auto offsets = made.tokens->document_offsets();
  ASSERT_EQ(made.spans.size(), 6U * 2U * 3U * 2U);
  std::map<std::int64_t, std::string> answers;  // of each text, from its trials
  for (const TaskTrial& trial : made.trials) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(trial.tokens));
    made.tokens->read(offsets[trial.text] + trial.first, ids);
    const std::string right = bytes->decode(ids);
    answers[trial.text] += right;
    EXPECT_EQ(right.front(), ' ');
    std::int32_t decisive = 0;
    made.tokens->read(offsets[trial.text] + trial.decisive, {&decisive, 1});
    EXPECT_EQ(decisive, trial.candidates[0]);
    EXPECT_EQ(std::set(trial.candidates.begin(), trial.candidates.end()).size(), 8U);
    EXPECT_EQ(trial.decisive, trial.first + 1);  // all begin with a space
  }
  for (std::size_t text = 0; text < made.spans.size(); ++text) {
    const auto count = static_cast<std::size_t>(offsets[text + 1] - offsets[text] - 1);
    const std::int64_t length = made.lengths[(text / 6) % 2];
    EXPECT_LE(count, static_cast<std::size_t>(length));
    EXPECT_GT(count, static_cast<std::size_t>(length) - 40) << "one more sentence had room";
    EXPECT_EQ(made.spans[text].length, static_cast<std::int64_t>(count) - 1);
    std::vector<std::int32_t> ids(count);
    std::vector<float> weights(count);
    made.tokens->read(offsets[text], ids);
    made.tokens->read_weights(offsets[text], weights);
    std::string weighted;
    for (std::size_t i = 0; i < count; ++i) {
      if (weights[i] > 0) weighted += bytes->token_text(ids[i]);
    }
    EXPECT_EQ(weighted, answers[static_cast<std::int64_t>(text)]);
    EXPECT_EQ(ids.front() == 256, begin_token.has_value());
    EXPECT_EQ(std::ranges::count(ids, 256), begin_token.has_value()) << "bytes of text have no such token";
  }
}

TEST_F(TaskTokens, FillALengthAndWeighOnlyTheAnswers) {
  expect_filled({});
}

TEST_F(TaskTokens, BeginWithTheTokenThatBeginsAText) {
  expect_filled(256);
}

TEST_F(TaskTokens, WhatDoesNotFitIsRefused) {
  expect_error(ExitCode::usage, "context of 300 tokens", [] { samples(1, {300}); });
  TaskSettings many;
  many.candidates = 50;  // there are only ten digits
  const TaskKind single[] = {TaskKind::single};
  const std::int64_t length[] = {1000};
  const auto refused = [&](const TaskSettings& settings) {
    return error_of(ExitCode::usage,
                    [&] { make_task_samples(single, length, settings, *load_tokenizer("bytes"), 257); });
  };
  const std::string large = refused({.depths = std::int64_t{1} << 30, .samples = std::int64_t{1} << 30});
  EXPECT_NE(large.find("of tokens, but"), std::string::npos) << large;  // before one of them is made
  const std::string sentence = refused(many);
  EXPECT_NE(sentence.find("answers apart, but --task-candidates is 50"), std::string::npos) << sentence;
}

// The reference processes each text with the model's own nll and all of its logits.
TEST_F(TasksTest, EqualsAWitnessWithAllLogits) {
  const TaskSamples made = samples(1, {1000});
  const Config one = config({"training.loss_chunk=1300"});
  std::map<TaskKind, TaskCell> expected;
  on_random(one, [&](RankState& state) {
    for (std::int64_t text = 0; text < std::ssize(made.spans); ++text) {
      const ReadSpan& span = made.spans[text];
      load_spans(state.batch, *made.tokens, {&span.begin, 1}, span.length, span.length, state.shard);
      const TensorView nll = state.evaluation_nll.view().prefix({1, state.batch.T});
      state.model->evaluate(state.batch, nll);
      const auto pass = state.model->begin_logits(state.batch);
      const TensorView logits = pass.rows(0, state.batch.T);
      const std::vector<std::int32_t> ids = [&] {
        std::vector<std::int32_t> read(static_cast<std::size_t>(span.length + 1));
        made.tokens->read(span.begin, read);
        return read;
      }();
      for (const TaskTrial& trial : made.trials) {
        if (trial.text != text) continue;
        TaskCell cell{1, 1, 1, 0, static_cast<double>(trial.tokens)};
        for (std::int64_t token = trial.first; token < trial.first + trial.tokens; ++token) {
          cell.nll += nll.as<double>()[token - 1];
          const double* const row = logits.as<double>() + (token - 1) * 257;
          for (std::int64_t v = 0; v < 257; ++v) {
            if (row[v] > row[ids[static_cast<std::size_t>(token)]]) cell.exact = 0;
          }
        }
        const double* const row = logits.as<double>() + (trial.decisive - 1) * 257;
        for (const std::int32_t other : trial.candidates) {
          if (row[other] > row[trial.candidates[0]]) cell.right = 0;
        }
        expected[made.kinds[static_cast<std::size_t>(trial.task)]] += cell;
      }
    }
  });
  const TaskSummary found = evaluate(config(), made);
  for (const TaskResult& task : found.tasks) {
    const TaskCell& cell = expected.at(task.kind);
    EXPECT_EQ(task.all.trials, cell.trials);
    EXPECT_EQ(task.all.right, cell.right);
    EXPECT_EQ(task.all.exact, cell.exact);
    EXPECT_EQ(task.all.tokens, cell.tokens);
    EXPECT_NEAR(task.all.nll, cell.nll, 1e-9 * cell.nll) << name_of(task.kind);
  }
}

TEST_F(TasksTest, ARandomModelIsAtChance) {
  const TaskSamples made = samples(40, {1000});
  const TaskSummary found = evaluate(config(), made);
  ASSERT_EQ(found.tasks.size(), 6U);
  for (const TaskResult& task : found.tasks) {
    EXPECT_GE(task.all.trials, 120);
    EXPECT_LT(std::abs(deviations(task.all, found.chance())), 2) << name_of(task.kind);
    for (const auto& row : task.cells) {
      for (const TaskCell& cell : row) {
        EXPECT_GE(cell.trials, 40);
        EXPECT_LT(std::abs(deviations(cell, found.chance())), 4) << name_of(task.kind);
      }
    }
  }
}

TEST_F(TasksTest, DoNotDependOnTheMesh) {
  const TaskSamples made = samples(1);
  const TaskSummary reference = evaluate(config(), made);
  for (const auto& [data, sequence, shard] :
       {std::tuple{1, 4, "optimizer"}, {2, 2, "weights"}, {5, 1, "weights"}, {1, 3, "optimizer"}}) {
    const TaskSummary found =
        evaluate(config({fmt::format("mesh.data={}", data), fmt::format("mesh.sequence={}", sequence),
                         fmt::format("training.shard={}", shard), "training.global_batch_size=40"}),
                 made);
    for (std::size_t task = 0; task < 6; ++task) {
      for (std::size_t i = 0; i < 2; ++i) {
        for (std::size_t depth = 0; depth < 3; ++depth) {
          const TaskCell &a = found.tasks[task].cells[i][depth], &b = reference.tasks[task].cells[i][depth];
          EXPECT_EQ(a.trials, b.trials);
          EXPECT_EQ(a.right, b.right);
          EXPECT_NEAR(a.nll, b.nll, 1e-10 * b.nll);
        }
      }
    }
  }
}

TEST_F(TasksTest, AModelOfEqualLogitsHasExactlyChance) {
  const TaskSamples made = samples(1, {1000});
  TaskSummary found;
  on_random(config(), [&](RankState& state) {
    state.parameters.clear_weights();
    found = evaluate_tasks(state, made, true, nullptr);
  });
  for (const TaskResult& task : found.tasks) {
    EXPECT_NEAR(task.all.right, task.all.trials / 8, 1e-12);
    EXPECT_NEAR(task.all.nll / task.all.tokens, std::log(257.0), 1e-12);
  }
  const auto json = tasks_json(found);
  EXPECT_EQ(json.at("chance"), 0.125);
  EXPECT_EQ(json.at("results").size(), 6U);
  EXPECT_EQ(json.at("results")[0].at("cells").size(), 3U);
  EXPECT_TRUE(json.at("results")[0].contains("greedy_match"));
  const std::string text = task_tables(found);
  EXPECT_NE(text.find("chance is 12.5%"), std::string::npos) << text;
  EXPECT_NE(text.find("association: 12.5%"), std::string::npos) << text;
}

TEST_F(TasksTest, AModelWithoutATokenizerIsRefused) {
  const std::string data = write_tokens("text.h5", {.longest = 200});
  run(tiny(data, {"training.steps=1"}), "run");
  EvaluationOptions options;
  options.checkpoint = at("run");
  options.data = data;
  options.request = {{100}, 8, 4};
  options.metrics = {long_context_tasks({{TaskKind::single}, {}, false})};
  expect_error(ExitCode::usage, "no tokenizer", [&] { evaluate_on_threads(options); });
}

}  // namespace
}  // namespace ringtrain::testing
