// A resume on a failing disk: any single call may fail, including those that only look or read. Nothing is lost
// afterwards: metrics are unchanged or correctly cut, each checkpoint exists, and the next resume completes the run as
// if it had never been disturbed.
#include <cstdlib>
#include <fstream>

#include "tests/train/child_process.h"
#include "tests/train/faulty_disk.h"
#include "tests/train/train_fixture.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace ringtrain::testing {
namespace {

class ResumeFaults : public TrainTest {
 protected:
  void SetUp() override {
    RINGTRAIN_NEEDS_FAULTY_DISK();
    TrainTest::SetUp();
    config = tiny(write_tokens("text.h5", split_text),
                  {"training.global_batch_size=2", "training.dtype=float32", "training.steps=7",
                   "checkpoint.interval=2", "checkpoint.keep=10", "evaluation.interval=2",
                   "evaluation.context_lengths=[16]", "evaluation.target_tokens=8", "evaluation.target_blocks=4"});
    write_config(config);
    run(config, "whole");
    // The files for the resume: checkpoints of steps 2, 4, and 5, the last of them damaged; metrics up to step 5, with
    // an invalid line in the middle, and one of step 6 that a power failure truncated.
    run(config, "base", {}, 5);
    std::fstream(state_file(checkpoint("base", 5)), std::ios::in | std::ios::out | std::ios::binary)
        .seekp(3000)
        .put('x');
    lines = lines_of("base");
    lines.insert(lines.begin() + 3, "{\"kind\":\"train\",\"st\n");
    std::ofstream metrics(at("base/metrics.jsonl"), std::ios::binary);
    for (const std::string& line : lines) metrics << line;
    metrics << torn;
  }
  std::vector<std::string> lines_of(const std::string& output) const {
    std::vector<std::string> all;
    std::ifstream file(at(output) + "/metrics.jsonl", std::ios::binary);
    for (std::string line; std::getline(file, line);) all.push_back(line + "\n");
    return all;
  }
  void copy_base() const {
    fs::remove_all(at("run"));
    fs::copy(at("base"), at("run"), fs::copy_options::recursive);
  }
  static std::int64_t step_of(const std::string& line) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    return json.is_object() ? json.at("step").get<std::int64_t>() : 0;
  }
  /// Expects the metrics to be those of the base, or those of a run that continues from `step`, possibly with more
  /// lines of that run.
  bool as_before_or_cut_to(std::int64_t step) const {
    std::string before, cut;
    for (const std::string& line : lines) {
      before += line;
      if (step_of(line) <= step) cut += line;
    }
    const std::string now = content_of(at("run/metrics.jsonl"));
    if (now == before + torn) return true;
    if (!now.starts_with(cut)) return false;
    std::istringstream rest(now.substr(cut.size()));
    for (std::string line; std::getline(rest, line);) {
      if (step_of(line) <= step) return false;
    }
    return true;
  }
  /// Expects each of the base's good checkpoints to exist, under its name or set aside.
  void expect_checkpoints(const std::string& what) const {
    for (const std::int64_t step : {2, 4}) {
      const std::string path = checkpoint("run", step);
      EXPECT_EQ(open_checkpoint(fs::exists(path) ? path : path + ".superseded").manifest.step, step) << what;
    }
    const std::string damaged = checkpoint("run", 5);
    EXPECT_TRUE(fs::exists(damaged) || fs::exists(damaged + ".superseded")) << what;
  }
  Config config;
  std::vector<std::string> lines;  // of the base's metrics, except the truncated one
  const std::string torn = R"({"kind":"train","step":6,"time":"2026-)";
  const std::vector<std::string> go_on{"--config", "run.yaml", "--output", "run", "--resume"};
};

TEST_F(ResumeFaults, EachCallMayFail) {
  copy_base();
  std::vector<std::string> calls;
  expect_end(run_on_faulty_disk({{"PATH", "run"}, {"READS", "1"}, {"LOG", at("calls.txt")}}, "train", go_on, folder),
             0);
  std::ifstream file(at("calls.txt"));
  for (std::string line; std::getline(file, line);) calls.push_back(line.substr(line.find(' ') + 1));
  const std::vector<std::string> expected = lines_of("run");
  EXPECT_EQ(expected[3], lines[3]);  // the damaged line
  ASSERT_GT(calls.size(), 100u);
  const char* const all = std::getenv("RINGTRAIN_TORTURE");
  const std::size_t stride =
      all && std::atoi(all) != 0 ? 1 : 41;  // a prime: over the repetitions, it includes every kind of call
  std::size_t tried = 0, refused = 0;
  for (std::size_t n = 1; n <= calls.size(); n += stride) {
    copy_base();
    const std::string what = fmt::format("call {} of {}, {}", n, calls.size(), calls[n - 1]);
    const ChildResult result = run_on_faulty_disk(
        {{"PATH", "run"}, {"READS", "1"}, {"AT", std::to_string(n)}, {"ERROR", "5"}}, "train", go_on, folder);
    ++tried;
    refused += result.code == 0 ? 0 : 1;
    EXPECT_TRUE(result.code == 0 || result.code == 2 || result.code == 4) << what << "\n" << result.err;
    EXPECT_TRUE(as_before_or_cut_to(4) || as_before_or_cut_to(2)) << what << "\n"
                                                                  << result.err << content_of(at("run/metrics.jsonl"));
    expect_checkpoints(what + "\n" + result.err);
    if (HasFailure()) return;
    const ChildResult next = run_child("train", go_on, folder);
    ASSERT_EQ(next.code, 0) << what << "\n" << next.err;
    const std::vector<std::string> now = lines_of("run");
    ASSERT_EQ(now.size(), expected.size()) << what << "\n" << next.err;
    std::vector<double> losses;
    for (const std::string& line : now) {
      const auto json = nlohmann::json::parse(line, nullptr, false);
      if (json.is_object() && json.at("kind") == "train") losses.push_back(json.at("loss"));
    }
    ASSERT_EQ(losses, numbers("whole", "loss")) << what;
    ASSERT_EQ(state(checkpoint("run", 7)), state(checkpoint("whole", 7))) << what;
  }
  std::printf("%zu of %zu calls failed once; %zu of them ended the run\n", tried, calls.size(), refused);
  EXPECT_GT(refused, 0u);
}

}  // namespace
}  // namespace ringtrain::testing
