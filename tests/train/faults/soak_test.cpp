// A run at full load for RINGTRAIN_SOAK_SECONDS (scripts/torture soak; skipped without it): checkpoints, evaluation,
// metrics; killed and resumed every RINGTRAIN_SOAK_KILL_EVERY seconds. Between two kills, memory is constant within 1 %
// and no descriptor is lost; the losses are those of the undisturbed run.
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill and sigaction are POSIX
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atof(text) : 0;
}

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The system's information about a process at one moment.
struct Sample {
  double resident = 0;  // bytes
  int descriptors = 0;
};

Sample sample_of(pid_t process) {
  Sample sample;
  const std::string folder = "/proc/" + std::to_string(process);
  std::ifstream statm(folder + "/statm");
  double size = 0;
  statm >> size >> sample.resident;
  sample.resident *= static_cast<double>(::sysconf(_SC_PAGESIZE));
  std::error_code error;
  for (fs::directory_iterator entry(folder + "/fd", error), end; !error && entry != end; entry.increment(error)) {
    ++sample.descriptors;
  }
  return sample;
}

/// Compares the last third of a stretch with its middle third: the first is warm-up. Compares medians of resident
/// memory: the peak of a third is a save during an evaluation, and on a busy machine, a third may have none or several.
void expect_flat(const std::vector<Sample>& samples) {
  const std::size_t third = samples.size() / 3;
  ASSERT_GT(third, 2u) << "too short a stretch";
  const auto sorted = [&](std::size_t begin, auto member) {
    std::vector<double> values;
    for (std::size_t i = begin; i < begin + third; ++i) values.push_back(double(samples[i].*member));
    std::ranges::sort(values);
    return values;
  };
  const auto middle = sorted(third, &Sample::resident), last = sorted(2 * third, &Sample::resident);
  const auto open = sorted(third, &Sample::descriptors), open_later = sorted(2 * third, &Sample::descriptors);
  std::printf(
      "resident: median %.2f MiB, later %.2f; most %.2f, later %.2f; descriptors: %.0f, later %.0f; %zu samples\n",
      middle[third / 2] / (1 << 20), last[third / 2] / (1 << 20), middle.back() / (1 << 20), last.back() / (1 << 20),
      open.back(), open_later.back(), samples.size());
  EXPECT_LE(last[third / 2], 1.01 * middle[third / 2]);
  EXPECT_LE(last.back(), 1.05 * middle.back());
  // A save has one or two open files, and a sample may or may not include them; a leak would be one per save or step.
  EXPECT_LE(open_later.back(), open.back() + 2);
}

using Soak = TrainTest;

TEST_F(Soak, MemoryIsFlatAndTheLossThatOfTheUndisturbedRun) {
  const double duration = seconds_of("RINGTRAIN_SOAK_SECONDS"), every = seconds_of("RINGTRAIN_SOAK_KILL_EVERY");
  if (duration <= 0 || every <= 0) GTEST_SKIP() << "run by scripts/torture soak";
  const Config config =
      tiny(write_tokens("text.h5", {.documents = 300, .longest = 400, .validation_documents = 40}),
           {"training.steps=1000000", "training.dtype=float32", "training.global_batch_size=4", "training.seq_len=128",
            "model.hidden_size=32", "model.intermediate_size=64", "mesh.sequence=2", "checkpoint.interval=20",
            "checkpoint.keep=2", "evaluation.interval=50", "evaluation.context_lengths=[32, 128]",
            "evaluation.target_tokens=16", "evaluation.target_blocks=16", "lr_scheduler.type=constant"});
  write_config(config);
  const Clock::time_point start = Clock::now();
  while (since(start) < duration) {
    Child child("train", {"--config", "run.yaml", "--output", "run", "--resume"}, folder);
    const Clock::time_point begun = Clock::now();
    std::vector<Sample> samples;
    while (since(begun) < every) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // between samples
      const Sample sample = sample_of(child.id());
      ASSERT_GT(sample.resident, 0) << "it ended by itself: " << child.wait().err;
      samples.push_back(sample);
    }
    ::kill(child.id(), SIGKILL);
    EXPECT_EQ(child.wait().code, 256 + SIGKILL);
    expect_flat(samples);
  }
  // Until a step with a checkpoint, and the same steps without interruption.
  const std::int64_t last = (saved_steps("run").back() / 20 + 1) * 20;
  const std::string stop = std::to_string(last);
  ASSERT_EQ(
      run_child("train", {"--config", "run.yaml", "--output", "run", "--resume", "--stop-after", stop}, folder).code,
      0);
  ASSERT_EQ(run_child("train", {"--config", "run.yaml", "--output", "whole", "--stop-after", stop}, folder).code, 0);
  std::printf("%ld steps\n", static_cast<long>(last));
  EXPECT_EQ(losses("run").size(), static_cast<std::size_t>(last));
  expect_same_bits("run", "whole");
  EXPECT_EQ(evaluations("run"), evaluations("whole"));
}

}  // namespace
}  // namespace ringtrain::testing
