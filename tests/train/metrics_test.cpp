#include "train/metrics.h"

#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

class MetricsTest : public TrainTest {
 protected:
  std::string line(std::int64_t step, double loss = 1.5) const {
    StepRecord record;
    record.step = step;
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
  const auto json = nlohmann::json::parse(line(7, loss));
  EXPECT_EQ(json.at("kind"), "train");
  EXPECT_EQ(json.at("step"), 7);
  EXPECT_EQ(json.at("tokens"), 700);
  EXPECT_EQ(json.at("loss").get<double>(), loss);  // the very bits
  for (const char* key : {"grad_norm", "lr", "tokens_per_second", "seconds"}) EXPECT_TRUE(json.at(key).is_number());
  EXPECT_EQ(json.at("samples"), (nlohmann::json{3, 1, 2}));
  ASSERT_EQ(json.at("peak_bytes").size(), 2u);
  for (const char* key :
       {"weights", "gradients", "optimizer", "activations", "ring", "workspace", "checkpoint", "total"}) {
    EXPECT_TRUE(json.at("peak_bytes").at(0).at(key).is_number_integer()) << key;
  }
  EXPECT_EQ(json.at("peak_bytes").at(1).at("total"), 64);
}

TEST_F(MetricsTest, CutKeepsWhatIsNotLaterAndDropsATornLine) {
  const std::string path = at("metrics.jsonl");
  EXPECT_EQ(cut_metrics(path, 3), 0);  // there is none
  const auto write = [&](const std::string& tail) {
    remove_tree(path, ExitCode::internal);
    MetricsFile file(path, OnFailure::stop, {});
    for (int step = 1; step <= 5; ++step) file.write(line(step));
    File::append_to(path, ExitCode::internal).write(tail);
  };
  const std::size_t whole = line(1).size() + 1;
  write("");
  EXPECT_EQ(cut_metrics(path, 5), 0);
  EXPECT_EQ(cut_metrics(path, 3), static_cast<std::int64_t>(2 * whole));
  EXPECT_EQ(content_of(path), line(1) + "\n" + line(2) + "\n" + line(3) + "\n");
  write(line(6).substr(0, 40));  // the machine went down while it was written
  EXPECT_EQ(cut_metrics(path, 100), 40);
  write(line(6));  // whole but for its end
  EXPECT_EQ(cut_metrics(path, 100), static_cast<std::int64_t>(whole) - 1);
  write("");
  EXPECT_EQ(cut_metrics(path, 0), static_cast<std::int64_t>(5 * whole));
  EXPECT_EQ(content_of(path), "");
}

}  // namespace
}  // namespace ringtrain::testing
