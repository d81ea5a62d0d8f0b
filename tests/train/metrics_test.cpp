#include "train/step/metrics.h"

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <fstream>

#include "framework/storage/files.h"
#include "tests/train/train_fixture.h"
#include "train/run/metrics_history.h"
#include "train/step/step_trend.h"

namespace ringtrain::testing {
namespace {

class MetricsTest : public TrainTest {
 protected:
  std::string line(std::int64_t step, double loss = 1.5) const {
    StepRecord record;
    record.step = step;
    record.time = WallClock::time_point(std::chrono::milliseconds(1767323045678));
    record.tokens = step * 100;
    record.loss = loss;
    record.samples = {3, 1, 2};
    record.peak.resize(2);
    record.peak[1].by_tag[0] = 64;
    record.peak[1].total = 64;
    return metrics_line(record);
  }
};

TEST_F(MetricsTest, AStepsLineHasEveryField) {
  const double loss = 4.416482695665848;
  const auto fields = nlohmann::json::parse(line(7, loss));
  EXPECT_EQ(fields.at("kind"), "train");
  EXPECT_EQ(fields.at("step"), 7);
  EXPECT_EQ(fields.at("tokens"), 700);
  EXPECT_EQ(fields.at("loss").get<double>(), loss);  // exactly the same bits
  for (const char* key : {"grad_norm", "lr", "tokens_per_second", "seconds"}) EXPECT_TRUE(fields.at(key).is_number());
  EXPECT_EQ(fields.at("samples"), (nlohmann::json{3, 1, 2}));
  ASSERT_EQ(fields.at("peak_bytes").size(), 2u);
  for (const char* key :
       {"weights", "gradients", "optimizer", "activations", "ring", "workspace", "checkpoint", "total"}) {
    EXPECT_TRUE(fields.at("peak_bytes").at(0).at(key).is_number_integer()) << key;
  }
  EXPECT_EQ(fields.at("peak_bytes").at(1).at("total"), 64);
  EXPECT_EQ(fields.at("time"), "2026-01-02T03:04:05.678Z");
  StepRecord unchanged;
  unchanged.step = 8;
  EXPECT_FALSE(nlohmann::json::parse(metrics_line(unchanged)).contains("peak_bytes"));
}

/// While it lives, files end at this many bytes, as on a full disk.
class SmallFiles {
 public:
  explicit SmallFiles(std::uintmax_t bytes) : before_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit small{bytes, limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, before_);
  }

 private:
  rlimit limit_{};
  void (*before_)(int);
};

TEST_F(MetricsTest, AreWholeAgainAfterADiskThatWasFullForAWhile) {
  const std::string path = at("metrics.jsonl");
  std::vector<std::string> told;
  MetricsFile file(path, OnFailure::warn, [&](const std::string& one) { told.push_back(one); });
  std::string lines;
  std::int64_t step = 0;
  const auto write = [&] {
    const std::string one = line(++step);
    lines += one + "\n";
    file.write(one);
  };
  for (int i = 0; i < 10; ++i) write();
  for (const int room : {0, 1, 7, 100, 400}) {  // the disk ends in the first line, or between two
    told.clear();
    {
      const SmallFiles full(std::filesystem::file_size(path) + room);
      write();
      write();
    }
    write();
    ASSERT_EQ(told.size(), 2U) << room;
    EXPECT_TRUE(holds(told[0], "are kept in memory"));
    EXPECT_TRUE(holds(told[1], "are written now"));
    EXPECT_EQ(content_of(path), lines) << room;
  }
}

TEST_F(MetricsTest, CutKeepsWhatIsNotLaterAndDropsATornLine) {
  const std::string path = at("metrics.jsonl");
  const auto cut = [&](std::int64_t step) { return MetricsHistory::read(path).cut(step).bytes; };
  EXPECT_EQ(cut(3), 0);  // there is none
  const auto write = [&](const std::string& tail) {
    remove_tree(path, ExitCode::internal);
    MetricsFile file(path, OnFailure::stop, {});
    for (int step = 1; step <= 5; ++step) file.write(line(step));
    File::append_to(path, ExitCode::internal).write(tail);
  };
  const std::size_t whole = line(1).size() + 1;
  write("");
  EXPECT_EQ(cut(5), 0);
  EXPECT_EQ(cut(3), static_cast<std::int64_t>(2 * whole));
  EXPECT_EQ(content_of(path), line(1) + "\n" + line(2) + "\n" + line(3) + "\n");
  for (std::size_t length = 1; length < whole - 1; length += 7) {  // the machine crashed while it was written
    write(line(6).substr(0, length));
    EXPECT_EQ(cut(5), static_cast<std::int64_t>(length));
    EXPECT_EQ(cut(5), 0);
  }
  write(line(6));  // complete except for its line end
  EXPECT_EQ(cut(5), static_cast<std::int64_t>(whole) - 1);
  write(line(6));
  EXPECT_EQ(cut(6), 0);
  EXPECT_TRUE(content_of(path).ends_with(line(6) + "\n"));
  write("");
  EXPECT_EQ(cut(0), static_cast<std::int64_t>(5 * whole));
  EXPECT_EQ(content_of(path), "");
}

TEST_F(MetricsTest, WhatIsNotUnderstoodIsKeptAndReported) {
  const std::string path = at("metrics.jsonl"), zeros(40, '\0'), end = "\n";
  const std::vector<std::string> strange{"{\"kind\":\"train\",\"step\":4,\"loss\":1.",
                                         zeros,
                                         "",
                                         R"({"kind":"train","step":-4})",
                                         R"({"kind":"other","step":9})",
                                         "[1, 2]"};
  for (const std::string& one : strange) {
    std::ofstream(path, std::ios::binary)
        << line(1) << end << one << end << line(2) << end << line(3) << end << one << end << line(4) << end;
    const MetricsHistory history = MetricsHistory::read(path);
    EXPECT_FALSE(history.is_foreign());
    EXPECT_EQ(history.last_step(), 4);
    const MetricsHistory::Cut cut = history.cut(2);
    EXPECT_EQ(cut.damaged, 2) << one;
    EXPECT_EQ(cut.first_damaged, 2) << one;
    EXPECT_EQ(cut.bytes, static_cast<std::int64_t>(line(3).size() + line(4).size() + 2)) << one;
    EXPECT_EQ(content_of(path), line(1) + end + one + end + line(2) + end + one + end) << one;
    if (one.empty()) continue;
    // Without its line end, after lines that are older than the checkpoint: half a line of a run is useless.
    const bool is_half = &one == &strange[0];
    std::ofstream(path, std::ios::binary) << line(1) << end << one;
    EXPECT_EQ(MetricsHistory::read(path).cut(7).damaged, is_half ? 0 : 1) << one;
    EXPECT_EQ(content_of(path), line(1) + end + (is_half ? "" : one + end)) << one;
    std::ofstream(path, std::ios::binary) << one << end;
    EXPECT_TRUE(MetricsHistory::read(path).is_foreign()) << one;
  }
}

TEST_F(MetricsTest, AnEvaluationIsFoundByItsStep) {
  const std::string path = at("metrics.jsonl");
  std::ofstream(path) << line(2) << "\n" << metrics_line(2, {}, EvaluationSummary{}) << "\n" << line(3) << "\n";
  const MetricsHistory history = MetricsHistory::read(path);
  EXPECT_TRUE(history.holds_evaluation(2));
  EXPECT_FALSE(history.holds_evaluation(3));
  EXPECT_EQ(history.first_step(), 2);
}

TEST_F(MetricsTest, KeptStepsAreRemembered) {
  const std::string path = at("metrics.jsonl");
  std::ofstream file(path);
  const auto loss_of = [](int step) { return step % 7 == 0 ? std::nan("") : 2 + 0.01 * (step % 5); };
  for (int step = 1; step <= 90; ++step) file << line(step, loss_of(step)) << (step == 40 ? "\nno json\n" : "\n");
  file.close();
  const std::vector<StepReport> kept = MetricsHistory::read(path).numbers_up_to(80, 50);
  ASSERT_EQ(kept.size(), 58u);  // steps 23 to 80: 50 with a loss, 8 without
  for (int i = 0; i < 58; ++i) {
    EXPECT_TRUE(kept[i].loss == loss_of(23 + i) || std::isnan(loss_of(23 + i))) << i;
    EXPECT_EQ(std::isnan(kept[i].loss), std::isnan(loss_of(23 + i))) << i;
  }
  EXPECT_EQ(MetricsHistory::read(path).numbers_up_to(3, 50).size(), 3u);

  StepTrend whole, resumed, blind;  // the first one has received every step
  for (int step = 1; step <= 80; ++step) whole.add(loss_of(step), 0);
  for (const StepReport& one : kept) resumed.add(one.loss, one.grad_norm);
  EXPECT_FALSE(blind.add(30, 0).loss_z.has_value());
  const StepTrend::Verdict expected = whole.add(30, 0), verdict = resumed.add(30, 0);
  EXPECT_EQ(verdict.loss_z, expected.loss_z);
  EXPECT_EQ(verdict.loss_spike, expected.loss_spike);
  EXPECT_TRUE(holds(verdict.loss_spike, "mean of the last 50"));
}

TEST(StepTrend, MeasuresDeviationsFromTheValuesBefore) {
  StepTrend trend;
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(trend.add(i % 2 == 0 ? 1 : 3, 2).loss_z.has_value());
  const StepTrend::Verdict verdict = trend.add(5, 4);
  EXPECT_DOUBLE_EQ(verdict.loss_z.value_or(0), 3);  // mean 2, standard deviation 1
  EXPECT_FALSE(verdict.grad_norm_z.has_value()) << "all before are alike";
  EXPECT_FALSE(trend.add(std::nan(""), 1).loss_z.has_value());
}

}  // namespace
}  // namespace ringtrain::testing
