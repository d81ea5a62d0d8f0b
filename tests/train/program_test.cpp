// The built programs `train` and `evaluate` for their users: exit codes, one clear message on stderr, no damage.
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <tuple>

#include "framework/standard_streams.h"
#include "framework/storage/files.h"
#include "framework/storage/hdf5_datasets.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace ringtrain::testing {
namespace {

class Programs : public SplitTextTest {
 protected:
  void SetUp() override {
    SplitTextTest::SetUp();
    write_config(tiny(data, {"training.steps=4", "training.global_batch_size=2"}));
  }
  /// Evaluates, or is refused, with these arguments.
  ChildResult evaluate(const std::vector<std::string>& lengths_and_more, const std::string& checkpoint = "r") const {
    return run_child("evaluate",
                     joined({"--checkpoint", checkpoint, "--data", data, "--context-lengths"}, lengths_and_more),
                     folder);
  }
  ChildResult train_with(const std::vector<std::string>& arguments) const {
    return run_child("train", joined({"--config", "run.yaml"}, arguments), folder);
  }
  /// Returns a plan's text without the currently available memory and disk space.
  static std::string fixed(const std::string& s) {
    return std::regex_replace(s, std::regex("\n(available|checkpoints):.*"), "");
  }
};

// With long documents and with short ones, of which none fills a window.
TEST_F(Programs, TheEvaluationThatTrainProposesNextCanBeRun) {
  for (const std::string& texts : {data, write_tokens("short.h5", {.longest = 36, .validation_documents = 30})}) {
    const std::string log = train_with({"--set", "data.train=" + texts, "--output", texts + "-run"}).err;
    const std::size_t begin = std::min(log.find("evaluate --checkpoint"), log.size());
    std::istringstream words(log.substr(begin, log.find('\n', begin) - begin));
    const std::vector<std::string> command{std::istream_iterator<std::string>(words), {}};
    ASSERT_FALSE(command.empty()) << log;
    EXPECT_EQ(log.find("generate --checkpoint"), std::string::npos) << "without a tokenizer";
    const ChildResult evaluated = run_command(command, folder);
    EXPECT_EQ(evaluated.code, 0) << evaluated.err;
  }
}

// Every flag of every program that takes a number, according to its --help: no flag's check can be forgotten.
TEST_F(Programs, NumbersOfFlagsAreFiniteAndFitTheirType) {
  const std::map<std::string, std::vector<std::string>> programs{{"train", {"--config", "run.yaml"}},
                                                                 {"evaluate", {}},
                                                                 {"generate", {}},
                                                                 {"prepare", {}},
                                                                 {"plan", {"--config", "run.yaml"}},
                                                                 {"check", {"--config", "run.yaml"}}};
  const std::regex flag(R"(^ +(?:-\w,)?(--[a-z-]+) [A-Z](?:[ ,:=]|$))");
  std::size_t tried = 0;
  for (const auto& [program, arguments] : programs) {
    std::istringstream help(run_child(program, {"--help"}, folder).out);
    for (std::string line; std::getline(help, line);) {
      std::smatch match;
      if (!std::regex_search(line, match, flag)) continue;
      ++tried;
      for (const std::string value : {"nan", "inf", "-inf", "1e999"}) {
        std::vector<std::string> given = arguments;
        given.push_back(match.str(1) + "=" + value);
        const ChildResult result = run_child(program, given, folder);
        EXPECT_EQ(result.code, 2) << program << " " << given.back() << ": " << result.err;
        EXPECT_TRUE(holds(result.err, match.str(1))) << program << " " << given.back();
      }
    }
  }
  EXPECT_GE(tried, 25U);
  for (const char* beyond : {"--threads-per-rank=4294967297", "--seed=-1", "--seed=18446744073709551616"}) {
    expect_end(run_child("generate", {beyond}, folder), 2, {std::string(beyond).substr(0, 6)});
  }
}

// Names that somebody else chose: of files, keys, values, tensors. Sequences that a terminal would interpret are
// spelled out.
TEST_F(Programs, NothingThatANameHoldsReachesTheTerminalRaw) {
  const std::string evil =
      "a\x1b[2J\x9b"
      "b\r";
  std::ofstream(at("key.yaml")) << "\"tra\\e[2Jin\": 1\n";
  fs::create_directory(at("model"));
  std::ofstream(at("model/config.json")) << R"({"architectures": ["\u001b[2JForCausalLM"], "model_type": "\u001b[2J"})";
  fs::create_directory(at("dump"));
  std::ofstream(at("dump/index.json")) << R"({"format": "ringtrain dump", "format_version": 2, "step": 1, "data": 1,
    "sequence": 1, "layout": "\u001b[2J", "device": "cpu", "dtype": "\u001b]0;x\u0007", "sequences": 1,
    "sequence_length": 1, "tensors": [{"name": "\u001b[2J", "kind": "parameter", "shape": [1]}]})";
  std::ofstream(at("text.txt")) << "some text";
  const std::vector<std::vector<std::string>> commands{
      {"train", "--config", evil},
      {"train", "--config", "key.yaml"},
      {"train", "--verify-checkpoint", evil},
      {"train", "--" + evil},
      {"evaluate", "--checkpoint", "model", "--data", "text.h5", "--context-lengths", "16"},
      {"export", "--checkpoint", "model", "--output", "exported"},
      {"check", "--compare", "dump", "dump"},
      {"check", "--config", evil},
      {"plan", "--config", "run.yaml", "--hardware", evil},
      {"report", evil},
      {"prepare", "--input", "text.txt", "--output", evil}};
  for (const std::vector<std::string>& command : commands) {
    const ChildResult result = run_command(command, folder);
    const std::string shown = result.out + result.err;
    EXPECT_EQ(shown.find_first_of("\x1b\r\x07\x9b"), std::string::npos) << command[0] << ": " << visible(shown);
    EXPECT_TRUE(holds(shown, "[2J")) << command[0];
  }
}

TEST_F(Programs, TrainStopResumeEvaluate) {
  ChildResult result = train_with({"--stop-after", "2"});
  expect_end(result, 0, {"2/"});
  result = train_with({"--resume", "--set", "mesh.sequence=2"});
  expect_end(result, 0, {"mesh.sequence was 1 and is now 2"});
  EXPECT_TRUE(fs::exists(at("runs/run/config.yaml")));
  EXPECT_EQ(metrics("runs/run").size(), 4u);
  result = evaluate(
      {"16,32,64", "--target-tokens", "8", "--target-blocks", "20", "--mesh", "2x2", "--output", "result.json"},
      "runs/run");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(holds(result.out, "64*"));
  const auto json = nlohmann::json::parse(content_of(at("result.json")));
  for (const char* key : {"checkpoint", "trained_length", "documents", "target_tokens", "target_hash", "results"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  ASSERT_EQ(json.at("results").size(), 3u);
  for (const char* key : {"context_length", "nll", "perplexity", "bits_per_byte", "ci95", "delta_nll", "delta_ci95"}) {
    EXPECT_TRUE(json.at("results")[2].contains(key)) << key;
  }
}

TEST_F(Programs, HelpIsInWordsAndFitsATerminal) {
  for (const std::string program :
       {"train", "evaluate", "generate", "prepare", "export", "check", "plan", "report", "extend"}) {
    const ChildResult help = run_child(program, {"--help"}, folder);
    EXPECT_EQ(help.code, 0) << help.err;
    // Texts that the library for command lines would print itself.
    for (const char* inside : {"value in", "->", ":INT", " INT", "TEXT:", "POSITIVE", "Needs:", "Excludes:", "REQUIRED",
                               "Option Group", "\x1f", ":{"}) {
      EXPECT_FALSE(holds(help.out, inside)) << program;
    }
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110U) << program << ": " << line;
  }
  const std::string help = run_child("evaluate", {"--help"}, folder).out;
  for (const char* part :
       {"  --layout contiguous|striped|zigzag\n                              how a sequence is split",
        "  --threads-per-rank N        compute threads of each rank; 0: cores / ranks (0 to 1024) (default: 0)\n",
        "  --data FILE                 the token file (required)\n", "  -h,--help  "}) {
    EXPECT_TRUE(holds(help, part));
  }
  expect_refused(evaluate({"16", "--layout", "2"}), 2, {"--layout: 2 is not one of contiguous, striped, zigzag"});
}

TEST_F(Programs, NumbersOfTokensMayBeWrittenWithK) {
  const ChildResult plain = train_with({"--dry-run", "--set", "training.seq_len=1024", "--set",
                                        "training.loss_chunk=2048", "--set", "evaluation.context_lengths=[1024,2048]"}),
                    short_form = train_with({"--dry-run", "--set", "training.seq_len=1K", "--set",
                                             "training.loss_chunk=2k", "--set", "evaluation.context_lengths=[1k,2K]"});
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_EQ(fixed(short_form.out), fixed(plain.out)) << short_form.err;
  expect_refused(train_with({"--set", "training.seq_len=1KiB"}), 2, {"1KiB", "must be an integer from 1"});
  expect_refused(train_with({"--set", "training.seq_len=9999999999M"}), 2, {"9999999999M"});
  expect_refused(train_with({"--set", "training.steps=1K"}), 2, {"training.steps", "1K"});  // steps are not tokens
  expect_refused(evaluate({"4k,1K"}), 2, {"ascend", "1024"});
  expect_refused(evaluate({"4Q"}), 2, {"4Q"});
}

TEST_F(Programs, ADryRunPlansWhereARunIs) {
  const ChildResult before = train_with({"--dry-run"});
  EXPECT_EQ(before.code, 0) << before.err;
  ASSERT_EQ(train_with({"--stop-after", "1"}).code, 0);
  const std::string metrics_before = content_of(at("runs/run/metrics.jsonl"));
  const ChildResult after = train_with({"--dry-run"});
  EXPECT_EQ(after.code, 0) << after.err;
  EXPECT_TRUE(holds(after.err,
                    "train: this is the plan of a new run, which could not start here: runs/run: already holds a run; "
                    "continue it with --resume"));
  EXPECT_EQ(fixed(after.out), fixed(before.out));
  EXPECT_EQ(content_of(at("runs/run/metrics.jsonl")), metrics_before);
  EXPECT_EQ(train_with({}).code, 2);  // a run still does not start there
}

TEST_F(Programs, TasksOfSrunThatCannotFindEachOtherAreRefused) {
  ::setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  if (!RINGTRAIN_MPI) ::setenv("PMIX_RANK", "0", 1);  // tasks with PMIx, but without MPI
  expect_refused(train_with({}), 2, {"srun started 4 tasks that cannot find each other", "--mpi=pmix"});
  EXPECT_FALSE(fs::exists(at("runs")));
  ::setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  EXPECT_EQ(train_with({"--dry-run"}).code, 0);
  ::unsetenv("SLURM_STEP_NUM_TASKS");
}

TEST_F(Programs, HelpAndUsage) {
  for (const std::string program : {"train", "evaluate"}) {
    expect_refused(run_child(program, {"--nonsense"}, folder), 2, {});
    expect_refused(run_child(program, {}, folder), 2, {});
  }
  for (const auto& [number, words] :
       {std::pair{"0", "0 is not a whole number from 1 to"}, {"1.5", "1.5 is not a whole number"}}) {
    const ChildResult nothing = train_with({"--stop-after", number});
    expect_refused(nothing, 2, {"--stop-after", words});
    EXPECT_LT(nothing.err.size(), 200u) << nothing.err;
  }
  expect_refused(run_child("train", {"--config", "missing.yaml"}, folder), 2, {"missing.yaml"});
  for (const std::string mesh : {"2", "x2", "2x", "0x1", "2x2x2", "axb", "-1x2"}) {
    expect_refused(evaluate({"16", "--mesh=" + mesh}), 2, {"--mesh"});
  }
}

TEST_F(Programs, EvaluateTakesTheCheckpointsTargetsWhereNoFlagSaysOtherwise) {
  ASSERT_EQ(train_with({"--stop-after", "1", "--set", "evaluation.target_tokens=4", "--set",
                        "evaluation.target_blocks=6", "--set", "evaluation.context_lengths=[16]"})
                .code,
            0);
  ChildResult result = evaluate({"16"}, "runs/run");
  EXPECT_TRUE(holds(result.out, "24 target tokens in 6 blocks")) << result.err;
  result = evaluate({"16", "--target-tokens", "8", "--target-blocks", "5"}, "runs/run");
  EXPECT_TRUE(holds(result.out, "40 target tokens in 5 blocks")) << result.err;
  result = evaluate({"4"}, "runs/run");  // half of it is less than the checkpoint's 4
  EXPECT_TRUE(holds(result.out, "12 target tokens in 6 blocks")) << result.err;
}

// Users can recompute an evaluation's numbers from the scores of its tokens.
TEST_F(Programs, AnEvaluationIsTheMeanOfTheTokensItLists) {
  ASSERT_EQ(train_with({"--stop-after", "1"}).code, 0);
  struct Sums {
    double nll = 0, weight = 0;
  };
  const std::vector<std::string> blocks{"16,128", "--target-tokens", "8", "--target-blocks", "20"},
      strided{"16,32", "--stride", "8"};
  for (const auto& [more, stride] : {std::pair{blocks, false}, std::pair{strided, true}}) {
    std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, double> of_one;
    for (const std::string mesh : {"1x1", "2x2"}) {
      const std::string name = at("of" + mesh + (stride ? "s" : ""));
      const ChildResult result = evaluate(
          joined(more, {"--mesh", mesh, "--output", name + ".json", "--per-token", name + ".jsonl"}), "runs/run");
      EXPECT_EQ(result.code, 0) << result.err;
      const auto json = nlohmann::json::parse(content_of(name + ".json"));
      std::set<std::pair<std::int64_t, std::int64_t>> scored;  // document, index
      for (const auto& block : json.at("scored")) {
        for (std::int64_t i = 0; i < (stride ? 1 : 8); ++i)
          scored.emplace(block.at(0), block.at(1).get<std::int64_t>() - i);
      }
      EXPECT_EQ(bool(holds(result.out, "longest context scores different documents")), !stride) << result.out;
      std::map<std::int64_t, Sums> sums;
      std::istringstream lines(content_of(name + ".jsonl"));
      std::string line;
      std::getline(lines, line);
      EXPECT_EQ(nlohmann::json::parse(line).at("target_hash"), json.at("target_hash"));
      std::size_t tokens = 0;
      for (; std::getline(lines, line); ++tokens) {
        const auto one = nlohmann::json::parse(line);
        const std::int64_t length = one.at("context_length"), document = one.at("document"), index = one.at("index");
        const double nll = one.at("nll");
        sums[length].nll += one.at("weight").get<double>() * nll;
        sums[length].weight += one.at("weight").get<double>();
        EXPECT_TRUE(stride || scored.contains({document, index})) << line;
        if (mesh == "1x1") {
          EXPECT_TRUE(of_one.emplace(std::tuple{length, document, index}, nll).second) << line;
        } else {
          EXPECT_NEAR(of_one.at({length, document, index}), nll, 1e-10) << line;
        }
      }
      EXPECT_EQ(tokens, of_one.size());
      EXPECT_EQ(tokens, 2 * json.at("target_tokens").get<std::size_t>());
      for (const auto& length : json.at("results")) {
        const Sums& sum = sums.at(length.at("context_length"));
        EXPECT_NEAR(sum.nll / sum.weight, length.at("nll").get<double>(), 1e-12);
      }
    }
  }
}

TEST_F(Programs, DryRunPrintsThePlanAndWritesNothing) {
  const ChildResult result = train_with({"--dry-run", "--mesh", "2x3", "--set", "training.global_batch_size=4"});
  EXPECT_TRUE(holds(train_with({"--dry-run", "--mesh", "2by3"}).err, "--mesh 2by3: must be DATAxSEQUENCE"));
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* part : {"seq_len: 37", "parameters: ", "mesh: 2 data x 3 sequence = 6 ranks",
                           "rank 5: data 1, sequence 2", "weights", "first moment", "memory of all 6 ranks"}) {
    EXPECT_TRUE(holds(result.out, part));
  }
  EXPECT_FALSE(fs::exists(at("runs")));
}

TEST_F(Programs, ConfigsThatCannotRunAreUsageErrors) {
  expect_refused(train_with({"--set", "training.seqlen=5"}), 2, {"training.seqlen", "training.seq_len"});
  expect_refused(train_with({"--set", "mesh.data=3"}), 2, {"global_batch_size"});
  expect_refused(train_with({"--set", "mesh.sequence=38"}), 2, {"mesh.sequence", "37"});
  expect_refused(train_with({"--set", "model.num_attention_heads=3"}), 2, {"num_attention_heads"});
  expect_refused(train_with({"--set", "training.seq_len=1000", "--set", "training.micro_batch_size=60000", "--set",
                             "training.global_batch_size=60000"}),
                 2, {"does not fit", "bytes", "micro_batch_size"});
  EXPECT_FALSE(fs::exists(at("runs")));
}

TEST_F(Programs, AFolderThatHoldsARunOrCannotBeWrittenIsRefused) {
  ASSERT_EQ(train_with({"--stop-after", "1"}).code, 0);
  expect_refused(train_with({}), 2, {"runs/run", "--resume"});
  std::ofstream(at("file")) << "x";
  expect_refused(train_with({"--output", "file/run"}), 2, {"file"});
  expect_refused(train_with({"--output", "/proc/run"}), 2, {"/proc"});
  expect_refused(train_with({"--output", "/proc/run", "--dry-run"}), 2, {"/proc"});
}

TEST_F(Programs, BadDataIsCodeThree) {
  expect_refused(train_with({"--set", "data.train=missing.h5"}), 3, {"missing.h5"});
  fs::copy(data, at("cut.h5"));
  fs::copy(data + ".manifest.json", at("cut.h5.manifest.json"));
  fs::resize_file(at("cut.h5"), fs::file_size(data) - 10);
  expect_refused(train_with({"--set", "data.train=cut.h5"}), 3, {"cut.h5"});
  expect_refused(train_with({"--set", "model.vocab_size=20"}), 3, {"text.h5", "20"});
  expect_refused(train_with({"--set", "training.seq_len=100000"}), 3, {"text.h5", "100000"});
  EXPECT_FALSE(fs::exists(at("runs")));
}

TEST_F(Programs, BadCheckpointsAreCodeFour) {
  ASSERT_EQ(train_with({"--stop-after", "2"}).code, 0);
  expect_refused(train_with({"--resume", "nowhere"}), 4, {"nowhere"});
  expect_refused(train_with({"--resume", "--set", "training.seq_len=31"}), 4, {"seq_len was 37 and is now 31"});
  expect_refused(train_with({"--init-from", "nowhere", "--output", "other"}), 4, {"nowhere"});
  fs::resize_file(state_file(checkpoint("runs/run", 2)), 100);
  expect_refused(train_with({"--resume"}), 4, {"state-00000-of-00001.h5", "100"});
  expect_refused(evaluate({"16", "--target-tokens", "8"}, "runs/run"), 4, {"state-00000-of-00001.h5"});
}

TEST_F(Programs, ASaveThatFailsIsCodeFourAndKeepsThePreviousCheckpoint) {
  ASSERT_EQ(train_with({"--stop-after", "2"}).code, 0);
  const auto size = static_cast<std::int64_t>(fs::file_size(state_file(checkpoint("runs/run", 2))));
  for (const std::string mesh : {"mesh.data=1", "mesh.data=2"}) {  // another rank waits for the save
    const std::vector<std::string> arguments{"--config", "run.yaml", "--resume", "--set", mesh};
    const ChildResult result = run_child("train", arguments, folder, [&] { limit(RLIMIT_FSIZE, size / 4); });
    expect_refused(result, 4, {"state-0000", "File too large", "ulimit -f"});
    EXPECT_EQ(saved_step("runs/run"), 2);
    EXPECT_EQ(std::distance(fs::directory_iterator(at("runs/run/checkpoints")), fs::directory_iterator{}), 1);
  }
  EXPECT_EQ(train_with({"--resume"}).code, 0);
  EXPECT_EQ(saved_step("runs/run"), 4);
}

TEST_F(Programs, ALossThatIsNoNumberIsCodeFiveAndTouchesNothing) {
  // A correctly sealed checkpoint with one weight so large that scores overflow.
  ASSERT_EQ(train_with({"--stop-after", "2"}).code, 0);
  const std::string saved = checkpoint("runs/run", 2), file = state_file(saved);
  const DatasetList list = read_dataset_list(file, ExitCode::checkpoint);
  const Hdf5Dataset* norm = find_dataset(list.datasets, "weights/model.norm.weight");
  ASSERT_NE(norm, nullptr);
  const double huge = 1e308;
  File::open_for_update(file, ExitCode::checkpoint).write_at(norm->offset, &huge, sizeof huge);
  seal_checkpoint(saved);

  const std::string before = content_of(at("runs/run/metrics.jsonl")), weights = content_of(file);
  for (const std::string mesh : {"mesh.data=1", "mesh.data=2", "mesh.sequence=2"}) {
    expect_refused(train_with({"--resume", "--set", mesh}), 5, {"step 3", "loss", "norm", "optimizer.lr"});
    EXPECT_EQ(content_of(at("runs/run/metrics.jsonl")), before);
    EXPECT_EQ(content_of(file), weights);
    EXPECT_EQ(saved_steps("runs/run"), (std::vector<std::int64_t>{2}));
  }
}

TEST_F(Programs, ASignalSaves) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string output = signal == SIGINT ? "interrupted" : "terminated";
    Child child("train",
                {"--config", "run.yaml", "--output", output, "--set", "training.steps=1000000", "--set", "mesh.data=2"},
                folder);
    ASSERT_TRUE(wait_until([&] { return fs::exists(at(output) + "/metrics.jsonl") && metrics(output).size() > 2; }));
    ::kill(child.id(), signal);
    const ChildResult result = child.wait();
    EXPECT_EQ(result.code, 128 + signal) << result.err;
    const auto lines = metrics(output);
    ASSERT_GT(lines.size(), 2u);
    EXPECT_EQ(saved_step(output), lines.back().at("step"));
    EXPECT_EQ(train_with({"--output", output, "--resume", "--set", "training.steps=1000000", "--stop-after",
                          std::to_string(lines.size() + 1)})
                  .code,
              0);
    EXPECT_EQ(metrics(output).size(), lines.size() + 1);
  }
}

TEST_F(Programs, ASignalSaysWhatItDoesAndASecondOneEndsAtOnceUnsaved) {
  ::setenv("RINGTRAIN_FAULT", "1:ring keys and values:300:slow", 1);  // from some step on, a step takes seconds
  Child child("train",
              {"--config", "run.yaml", "--output", "signalled", "--set", "training.steps=1000", "--set",
               "mesh.sequence=2", "--set", "training.global_batch_size=24"},
              folder);
  ::unsetenv("RINGTRAIN_FAULT");
  wait_for_words("slow");
  ::kill(child.id(), SIGINT);
  wait_for_words("SIGINT");
  ::kill(child.id(), SIGTERM);
  const ChildResult result = child.wait();
  EXPECT_EQ(result.code, 8) << result.err;
  const std::size_t steps = metrics("signalled").size();
  EXPECT_TRUE(std::regex_search(
      result.err,
      std::regex(fmt::format("\ntrain: SIGINT: finishing step {} and saving takes up to [0-9.]+s plus the "
                             "time of the first save; press Ctrl-C or send SIGTERM again to end without saving\n"
                             "train: SIGTERM: ended immediately without saving; nothing was saved yet\n$",
                             steps + 1))))
      << result.err;
}

TEST_F(Programs, AFolderTakesOneRunAtATime) {
  const std::vector<std::string> endless{
      "--output", "shared", "--set", "training.steps=1000000", "--set", "checkpoint.interval=5"};
  Child child("train", joined({"--config", "run.yaml"}, endless), folder);
  ASSERT_TRUE(wait_until([&] { return !CheckpointFolder(at("shared/checkpoints")).steps().empty(); }));
  fs::create_directory(at("elsewhere"));  // for its own output
  std::vector<std::string> other = joined({"--config", "../run.yaml", "--resume"}, endless);
  std::replace(other.begin(), other.end(), std::string("shared"), std::string("../shared"));
  expect_refused(run_child("train", other, at("elsewhere")), 2,
                 {"../shared: is in use by another run: process ", std::to_string(child.id())});
  ::kill(child.id(), SIGKILL);  // a lock ends with its process
  child.wait();
  std::vector<std::string> second = joined(endless, {"--resume", "--stop-after", "1"});
  EXPECT_EQ(train_with(second).code, 0);  // it is past that step, and says so
  second.back() = std::to_string(saved_steps("shared").back() + 1);
  EXPECT_EQ(train_with(second).code, 0);
}

}  // namespace
}  // namespace ringtrain::testing
