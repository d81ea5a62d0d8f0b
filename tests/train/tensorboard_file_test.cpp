// train/step/tensorboard_file.h: event files hold the numbers of metrics.jsonl as float32, in records with right
// checksums. And z-scores, by hand.
#include "train/step/tensorboard_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/train/event_reader.h"
#include "tests/train/train_fixture.h"
#include "train/step/metrics.h"
#include "train/step/step_trend.h"

namespace ringtrain::testing {
namespace {

class Events : public TrainTest {
 protected:
  static std::string train_line(int step) {
    return fmt::format(
        R"({{"kind":"train","step":{},"time":"2026-11-22T13:04:0{}.250Z","tokens":{},"loss":{:.17g},"grad_norm":null}})",
        step, step, step * 64, 5.0 / step);
  }
  void write_metrics(int steps) const {
    std::ofstream file(at("metrics.jsonl"));
    for (int step = 1; step <= steps; ++step) file << train_line(step) << "\n";
    file << R"({"kind":"evaluation","step":3,"results":[{"context_length":64,"nll":1.5}]})"
         << "\nno json\n";
  }
};

TEST_F(Events, HavePublishedChecksums) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);            // the check value of CRC-32C
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
}

TEST_F(Events, HoldTheMetricsAndGoOnWithThem) {
  write_metrics(2);
  double time = 0;
  {
    TensorBoardFile file(folder, at("metrics.jsonl"));
    file.add(train_line(300));
    file.append();
  }
  const Scalars first = read_events(content_of(at("events.out.tfevents.0.ringtrain")), &time);
  EXPECT_EQ(first.at({"train/loss", 2}), 2.5F);
  EXPECT_EQ(first.at({"train/loss", 300}), static_cast<float>(5.0 / 300));
  EXPECT_EQ(first.at({"train/tokens", 1}), 64.0F);
  EXPECT_EQ(first.at({"evaluation/nll/64", 3}), 1.5F);
  EXPECT_FALSE(first.contains({"train/grad_norm", 1}));                   // null
  EXPECT_NEAR(scalars_of(train_line(2)).wall_time, 1795352642.25, 1e-6);  // date -d 2026-11-22T13:04:02Z +%s
  // A run that goes on from step 1: step 300 is in neither file.
  write_metrics(1);
  TensorBoardFile again(folder, at("metrics.jsonl"));
  const Scalars second = read_events(content_of(at("events.out.tfevents.0.ringtrain")), &time);
  EXPECT_FALSE(second.contains({"train/loss", 300}));
  EXPECT_EQ(second.at({"train/loss", 1}), 5.0F);
}

/// Files that end at so many bytes, as on a disk that is full, for as long as it lives.
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

TEST_F(Events, AndMetricsAreWholeAgainAfterAFullDisk) {
  // Events are longer than these lines, so the disk ends inside an event before it ends inside a line.
  const auto line = [](int step) {
    return fmt::format(R"({{"kind":"train","step":{},"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}})", step);
  };
  std::vector<std::string> told;
  MetricsFile file(
      at("metrics.jsonl"), OnFailure::warn, [&](const std::string& one) { told.push_back(one); }, folder);
  int step = 0;
  std::string lines;
  const auto write = [&] {
    lines += line(++step) + "\n";
    file.write(line(step));
  };
  for (int i = 0; i < 10; ++i) write();
  for (const int room : {0, 1, 7, 8, 11, 12, 13, 40, 100, 150}) {
    told.clear();
    {
      const SmallFiles full(std::filesystem::file_size(at("events.out.tfevents.0.ringtrain")) + room);
      write();
      write();
    }
    write();
    ASSERT_EQ(told.size(), 2U) << room;
    EXPECT_TRUE(holds(told[0], "wait in memory"));
    EXPECT_TRUE(holds(told[1], "are written"));
    double time = 0;
    const Scalars scalars = read_events(content_of(at("events.out.tfevents.0.ringtrain")), &time);
    EXPECT_EQ(scalars.size(), static_cast<std::size_t>(6 * step)) << room;
    EXPECT_EQ(content_of(at("metrics.jsonl")), lines) << room;
  }
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
