// What the programs write, and what they never overwrite: outputs of `train --trace`, `evaluate --output`, and
// `prepare`, the lock and the metrics of a run, two programs at a time, inputs that are not files.
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>

#include "data/token_file.h"
#include "framework/storage/files.h"
#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

class Outputs : public TextTest {
 protected:
  Outputs() : TextTest({.validation_documents = 20}) {}
  void SetUp() override {
    TextTest::SetUp();
    write_config(tiny(data, {"training.steps=2", "training.global_batch_size=2"}));
  }
  ChildResult train_with(const std::vector<std::string>& arguments) const {
    return run_child("train", joined({"--config", "run.yaml"}, arguments), folder);
  }
  ChildResult evaluate_to(const std::string& output, const std::string& checkpoint = "runs/run") const {
    return run_child("evaluate",
                     {"--checkpoint", checkpoint, "--data", "text.h5", "--context-lengths", "16", "--target-tokens",
                      "8", "--target-blocks", "4", "--output", output},
                     folder);
  }
  ChildResult prepare_with(const std::vector<std::string>& arguments) const {
    return run_child("prepare", arguments, folder);
  }
  /// Returns all files below the test's folder with their content, except a child's output.
  std::map<std::string, std::string> snapshot() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string path = fs::relative(entry.path(), folder).string();
      if (path.ends_with("stdout.txt") || path.ends_with("stderr.txt")) continue;
      files[path] = entry.is_regular_file() && !entry.is_symlink() ? content_of(entry.path().string()) : "";
    }
    return files;
  }
  /// Makes things that a user may have: a folder that looks temporary, a link, a FIFO.
  void make_obstacles(const std::string& output) const {
    fs::create_directory(at(output + ".partial"));
    std::ofstream(at(output + ".partial/precious")) << "mine";
    std::ofstream(at("logs.txt")) << "mine";
    fs::create_symlink("text.h5", at("link"));
    ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  }
  /// Invalid names of outputs, and their messages.
  const std::vector<std::pair<std::string, std::string>> bad_names{{"text.h5", "text.h5: is "},
                                                                   {"link", "it is a link"},
                                                                   {"fifo", "it is a FIFO"},
                                                                   {".", "it is a folder"},
                                                                   {"", "is empty"}};
};

// This checks messages; OfAllProgramsReplaceAnEarlierOneAndNothingElse tries every output.
TEST_F(Outputs, AnEvaluationReplacesAnEarlierOneAndNothingElse) {
  ASSERT_EQ(train_with({}).code, 0);
  make_obstacles("result.json");
  fs::create_directory(at("runs/run/tokenizer"));
  std::ofstream(at("runs/run/tokenizer/chat_template.jinja")) << "mine";
  const auto before = snapshot();
  const std::string saved = "runs/run/checkpoints/step-00000002";
  for (const auto& [name, part] : bad_names) expect_refused(evaluate_to(name), 2, {part});
  for (const std::string input : {"config.yaml", "metrics.jsonl", "lock", "tokenizer/chat_template.jinja"}) {
    // Files of the run that has the checkpoint.
    expect_refused(evaluate_to("runs/run/" + input, saved), 2, {"which this run uses"});
  }
  expect_refused(evaluate_to("run.yaml"), 2, {"run.yaml: exists and is not an evaluation's result"});
  expect_refused(evaluate_to("logs.txt"), 2, {"remove it first, or choose another --output"});
  EXPECT_EQ(snapshot(), before);
  EXPECT_EQ(evaluate_to("result.json").code, 0);
  auto after = snapshot();
  EXPECT_TRUE(nlohmann::json::parse(after.at("result.json")).contains("results"));
  after.erase("result.json");
  EXPECT_EQ(after, before);
}

TEST_F(Outputs, ATimelineReplacesAnEarlierOneAndNothingElse) {
  make_obstacles("trace.json");
  const auto before = snapshot();
  for (const auto& flag : {std::vector<std::string>{}, {"--dry-run"}}) {
    for (const auto& [name, part] : bad_names) expect_refused(train_with(joined({"--trace", name}, flag)), 2, {part});
  }
  expect_refused(train_with({"--trace", "logs.txt"}), 2, {"logs.txt: exists and is not a timeline of ringtrain"});
  EXPECT_EQ(snapshot(), before);
  EXPECT_EQ(train_with({"--trace", "trace.json", "--output", "one"}).code, 0);
  EXPECT_TRUE(nlohmann::json::parse(content_of(at("trace.json"))).contains("traceEvents"));
  EXPECT_EQ(content_of(at("trace.json.partial/precious")), "mine");
  // A file of the run itself, which does not exist when the run begins.
  const ChildResult result = train_with({"--trace", "three/metrics.jsonl", "--output", "three"});
  expect_end(result, 2, {"train: the timeline was not written: three/metrics.jsonl: "});
  EXPECT_EQ(metrics("three").size(), 2u);
  EXPECT_TRUE(fs::exists(at("three/checkpoints/step-00000002/manifest.json")));
}

/// An output of a program, as the table of docs/reliability.md lists them.
struct ProgramOutput {
  std::string program;
  std::vector<std::string> arguments;  // the last one names the output, followed by its path
  std::vector<std::string> inputs;     // that it must not replace
  bool has_mark = true;                // an earlier one is replaced
  bool is_folder = false;
  bool is_slow = false;  // only refusals are tried
};

std::vector<ProgramOutput> program_outputs() {
  const std::string saved = "runs/run/checkpoints/step-00000002/";
  const std::vector<std::string> of_run{"runs/run/config.yaml", "runs/run/metrics.jsonl", "runs/run/lock",
                                        saved + "manifest.json", saved + "config.yaml"};
  const std::vector<std::string> scored = joined(
      of_run,
      {"text.h5", "text.h5.manifest.json", saved + "state-00000-of-00001.h5", saved + "state-00000-of-00001.h5.json"});
  return {{"train",
           {"--config", "run.yaml", "--output", "runs/traced", "--trace"},
           {"run.yaml", "text.h5", "text.h5.manifest.json"}},
          {"evaluate",
           {"--checkpoint", "runs/run", "--data", "text.h5", "--context-lengths", "16", "--target-tokens", "8",
            "--target-blocks", "4", "--output"},
           scored},
          {"evaluate",
           {"--checkpoint", "runs/run", "--data", "text.h5", "--context-lengths", "16", "--target-tokens", "8",
            "--target-blocks", "4", "--per-token"},
           scored},
          {"plan", {"--config", "run.yaml", "--hardware", "machine.yaml", "--output"}, {"run.yaml", "machine.yaml"}},
          {"check", {"--config", "run.yaml", "--output"}, {"run.yaml", "text.h5", "text.h5.manifest.json"}},
          {"plan", {"--measure", "--output"}, {}, false, false, true},
          {"report", {"runs/run", "--output"}, of_run},
          {"prepare", {"--input", "in.txt", "--output"}, {"in.txt"}, false},
          {"export", {"--checkpoint", "runs/run", "--output"}, of_run, false, true},
          {"train",
           {"--config", "run.yaml", "--output", "runs/traced", "--dump-step", "1", "--dump"},
           {"run.yaml", "text.h5", "runs/run", "runs/run/checkpoints/step-00000002"},
           true,
           true},
          {"train", {"--config", "run.yaml", "--output"}, {"run.yaml", "text.h5"}, false, true}};
}

/// Files of a person that look like each of ours.
const std::vector<std::string> looks{
    "",
    "my notes",
    "<!DOCTYPE html>\n<html><body>my page</body></html>\n",
    R"({"kind": "plan", "steps": "mine"})",
    R"({"checkpoint":"c","trained_length":1,"documents":1,"target_tokens":1,"target_hash":"h","results":[]})",
    R"({"displayTimeUnit":"ms","traceEvents":[]})",
    "# Written by plan --measure, and then by me\n"};

TEST_F(Outputs, OfAllProgramsReplaceAnEarlierOneAndNothingElse) {
  ASSERT_EQ(train_with({}).code, 0);
  ASSERT_EQ(train_with({"--output", "dumped", "--dump-step", "1", "--dump", "dump"}).code, 0);
  fs::copy(source_folder() + "/configs/hardware/cpu.yaml", at("machine.yaml"));
  std::ofstream(at("in.txt")) << "text to prepare";
  fs::create_symlink("in.txt", at("link"));
  fs::create_symlink("nowhere", at("dangling"));
  fs::create_directory(at("folder"));
  std::ofstream(at("folder/thesis.txt")) << "mine";
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  for (const ProgramOutput& output : program_outputs()) {
    const auto write_to = [&](const std::string& path) {
      fs::remove_all(at("runs/traced"));
      return run_child(output.program, joined(output.arguments, {path}), folder);
    };
    const auto expect_unchanged = [&](const std::string& path) {
      fs::remove_all(at("runs/traced"));
      const auto before = snapshot();
      const ChildResult result = write_to(path);
      const std::string what = output.program + " " + output.arguments.back() + " " + path;
      EXPECT_EQ(result.code, 2) << what << ": " << result.err;
      EXPECT_TRUE(result.out.empty()) << what << ": " << result.out;
      EXPECT_TRUE(snapshot() == before) << what;
    };
    std::vector<std::string> never = output.inputs;
    never.insert(never.end(), {"fifo", "link"});
    if (!output.is_folder) never.insert(never.end(), {"dangling", "folder", ""});
    for (const std::string& path : never) expect_unchanged(path);
    for (const std::string& look : looks) {
      std::ofstream(at("look")) << look;
      expect_unchanged("look");
    }
    if (output.is_slow) continue;
    if (!output.is_folder) {
      EXPECT_EQ(write_to("new").code, 0) << output.program;
    } else if (output.arguments.back() == "--dump") {
      fs::rename(at("dump"), at("new"));
    } else if (output.arguments.back() == "--output") {
      if (output.program == "export") expect_unchanged("folder");
      EXPECT_EQ(write_to("new").code, 0) << output.program;
    }
    if (output.has_mark) {
      EXPECT_EQ(write_to("new").code, 0) << output.program << ", over a former one";
    } else {
      expect_unchanged("new");
    }
    for (const char* made : {"new", "new.manifest.json", "look"}) fs::remove_all(at(made));
  }
}

TEST_F(Outputs, OfAnEvaluationThatCannotBeWrittenAnyMoreAreNamedAndTheOthersAreWritten) {
  ASSERT_EQ(train_with({}).code, 0);
  fs::create_directory(at("gone"));
  write_document("long.h5", 23, std::vector<std::int32_t>(5000, 1));  // scored for about a second
  Child child(
      "evaluate",
      {"--checkpoint", "runs/run", "--data", "long.h5", "--part", "whole", "--context-lengths", "1K", "--target-tokens",
       "1", "--target-blocks", "100", "--output", "gone/results.json", "--per-token", "tokens.jsonl"},
      folder);
  ASSERT_TRUE(wait_until([&] {
    return std::ranges::any_of(fs::directory_iterator(folder), [](const auto& entry) {
      return entry.path().filename().string().starts_with("tokens.jsonl.partial-");
    });
  }));
  fs::remove_all(at("gone"));
  const ChildResult result = child.wait();
  expect_end(result, 2, {"evaluate: gone/results.json: its temporary file gone/results.json.partial-", " was deleted"});
  EXPECT_TRUE(holds(result.out, "perplexity"));
  EXPECT_TRUE(fs::exists(at("tokens.jsonl")));
}

TEST_F(Outputs, AnExportKeepsOutOfARunsCheckpoints) {
  ASSERT_EQ(train_with({}).code, 0);
  fs::create_symlink("runs/run/checkpoints", at("shortcut"));
  const auto before = snapshot();
  for (const std::string output :
       {"runs/run/checkpoints/step-00000001", "runs/run/checkpoints/mine", "runs/run/checkpoints/step-00000002/model",
        "shortcut/step-00000001", "runs/../runs/run/./checkpoints/deep/er"}) {
    expect_refused(run_child("export", {"--checkpoint", "runs/run", "--output", output}, folder), 2,
                   {"is in the checkpoints of the run"});
    EXPECT_EQ(snapshot(), before);
  }
  fs::create_directories(at("my/checkpoints"));  // not of a run
  EXPECT_EQ(run_child("export", {"--checkpoint", "runs/run", "--output", "my/checkpoints/model"}, folder).code, 0);
}

TEST_F(Outputs, LockAndMetricsAreWrittenThroughNoLinkAndOverNothing) {
  std::ofstream(at("precious")) << "12\n";
  fs::create_directory(at("run"));
  fs::create_symlink("../precious", at("run/lock"));
  expect_refused(train_with({"--output", "run"}), 2, {"run/lock: it is a link"});
  fs::remove(at("run/lock"));
  fs::copy(at("text.h5"), at("run/lock"));
  expect_refused(train_with({"--output", "run"}), 2, {"run/lock: is not a lock file"});
  EXPECT_EQ(content_of(at("run/lock")), content_of(data));
  ASSERT_EQ(train_with({"--output", "other", "--stop-after", "1"}).code, 0);
  fs::rename(at("other/metrics.jsonl"), at("elsewhere"));
  fs::create_symlink("../elsewhere", at("other/metrics.jsonl"));
  const std::string before = content_of(at("elsewhere"));
  EXPECT_EQ(train_with({"--output", "other", "--resume"}).code, 4);
  EXPECT_EQ(content_of(at("elsewhere")), before);
  EXPECT_EQ(content_of(at("precious")), "12\n");
}

TEST_F(Outputs, OfTwoPreparesOneWritesAndTheOtherIsRefused) {
  fs::create_directory(at("in"));
  for (int i = 0; i < 40; ++i) std::ofstream(at("in/" + std::to_string(i))) << std::string(20000, 'a') << i;
  for (int round = 0; round < 4; ++round) {
    const std::string output = at(fmt::format("{}.h5", round));
    std::vector<Child> children;
    for (const std::string name : {"one", "two", "three"}) {  // each with other documents: no two files are equal
      fs::create_directories(at(name));
      children.emplace_back(
          "prepare",
          std::vector<std::string>{"--input", at("in"), "--output", output, "--seed", std::to_string(children.size())},
          at(name));
    }
    int done = 0;
    for (Child& child : children) {
      const ChildResult result = child.wait();
      done += result.code == 0 ? 1 : 0;
      if (result.code == 0) continue;
      EXPECT_EQ(result.code, 2) << result.err;
      EXPECT_TRUE(result.err.find("is writing it now") != std::string::npos ||
                  result.err.find("never overwritten") != std::string::npos)
          << result.err;
    }
    EXPECT_EQ(done, 1);
    EXPECT_NO_THROW(TokenFile::open(output));
  }
  for (const std::string& name : list_directory(folder, ExitCode::data)) {
    EXPECT_FALSE(holds(name, ".partial"));
  }
}

TEST_F(Outputs, PrepareRefusesWhatMeansNothing) {
  std::ofstream(at("a.txt")) << "text";
  const auto before = snapshot();
  expect_refused(prepare_with({"--input", "a.txt", "--output", ""}), 2, {"--output is empty"});
  expect_refused(prepare_with({"--input", "a.txt", "--output=", "a.h5"}), 2, {"--output= has no value"});
  expect_refused(prepare_with({"--input", "a.txt", "--output", "--threads"}), 2, {"--output has no value: --threads"});
  for (const std::string fraction : {"nan", "-nan", "inf", "-0.1", "1"}) {
    expect_refused(prepare_with({"--input", "a.txt", "--output", "a.h5", "--validation-fraction=" + fraction}), 2,
                   {"--validation-fraction"});
  }
  for (const std::string seed : {"-1", "-9223372036854775808", "18446744073709551615", "x"}) {
    expect_refused(prepare_with({"--input", "a.txt", "--output", "a.h5", "--seed=" + seed}), 2, {"--seed"});
    expect_refused(prepare_with({"--synthetic", "recall", "--output", "a.h5", "--seed=" + seed}), 2, {"--seed"});
  }
  EXPECT_EQ(snapshot(), before);
}

TEST_F(Outputs, APrepareThatIsStoppedLeavesNothing) {
  const auto before = snapshot();
  for (const int signal : {SIGTERM, SIGINT}) {
    // Seconds of work, or far more on a busy machine; it is stopped as soon as its file exists.
    Child child("prepare", {"--synthetic", "recall", "--documents", "8000", "--length", "4096", "--output", "r.h5"},
                folder);
    const auto writing = [&] {
      const auto names = list_directory(folder, ExitCode::data);
      return std::ranges::any_of(names, [](const std::string& name) { return name.starts_with("r.h5.partial"); });
    };
    EXPECT_TRUE(wait_until(writing));
    ::kill(child.id(), signal);
    const ChildResult result = child.wait();
    EXPECT_EQ(result.code, 128 + signal) << result.err;
    EXPECT_TRUE(holds(result.err, "nothing was written"));
    EXPECT_EQ(snapshot(), before);
  }
}

TEST_F(Outputs, InputsThatAreNoFilesAreRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  expect_refused(run_child("train", {"--config", "fifo"}, folder), 2, {"fifo: it is a FIFO"});
  expect_refused(run_child("train", {"--config", "/dev/zero"}, folder), 2, {"/dev/zero: it is a device"});
  expect_refused(train_with({"--set", "data.train=fifo"}), 3, {"fifo: it is a FIFO"});
  expect_refused(train_with({"--set", "data.train=/dev/zero"}), 3, {"/dev/zero: it is a device"});
  fs::copy(data, at("other.h5"));
  ASSERT_EQ(::mkfifo(at("other.h5.manifest.json").c_str(), 0600), 0);
  expect_refused(train_with({"--set", "data.train=other.h5"}), 3, {"other.h5.manifest.json: it is a FIFO"});
  ASSERT_EQ(train_with({}).code, 0);
  for (const std::string name :
       {"manifest.json", "config.yaml", "state-00000-of-00001.h5", "state-00000-of-00001.h5.json"}) {
    const std::string path = checkpoint("runs/run", 2) + "/" + name;
    fs::rename(path, at("kept"));
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    const ChildResult verified =
        run_child("train", {"--verify-checkpoint", "runs/run/checkpoints/step-00000002"}, folder);
    EXPECT_EQ(verified.code, 4) << verified.err;
    EXPECT_TRUE(holds((verified.out + verified.err), name)) << verified.out << verified.err;
    fs::remove(path);
    fs::rename(at("kept"), path);
  }
}

TEST_F(Outputs, MeshesAndThreadsHaveBounds) {
  ASSERT_EQ(train_with({}).code, 0);
  const std::vector<std::string> plain{"--checkpoint", "runs/run", "--data", "text.h5", "--context-lengths", "2048"};
  const auto refused = [&](const std::vector<std::string>& more, const std::string& part) {
    expect_refused(run_child("evaluate", joined(plain, more), folder), 2, {part});
  };
  refused({"--mesh", "4096x4096"}, "together at most 1024 ranks");
  refused({"--mesh", "1024x1024"}, "together at most 1024 ranks");
  refused({"--threads-per-rank", "100000"}, "--threads-per-rank");
  refused({"--mesh", "8x8", "--threads-per-rank", "1024"}, "65536 threads");
  const std::vector<std::string> million{"--set",    "mesh.data=1024",
                                         "--set",    "mesh.sequence=1024",
                                         "--set",    "training.seq_len=1024",
                                         "--set",    "training.global_batch_size=1024",
                                         "--set",    "mesh.threads_per_rank=1024",
                                         "--output", "million"};
  expect_refused(train_with(million), 2, {});
  const ChildResult result = train_with(joined(million, {"--dry-run"}));
  EXPECT_TRUE(holds(result.out, "memory of all 1048576 ranks")) << result.err;
  EXPECT_LT(result.out.size(), std::size_t{1} << 17);
  EXPECT_LT(result.peak_resident_bytes, std::int64_t{512} << 20);
  EXPECT_FALSE(fs::exists(at("million")));
}

}  // namespace
}  // namespace ringtrain::testing
