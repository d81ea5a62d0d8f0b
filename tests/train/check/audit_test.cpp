// The audit of attention in whole runs (training.audit): a wrong element on one rank of 2 x 2 ends the run before the
// update, or is told and passed over; metrics have it; a right run is not changed by it; a resume may change it.
#include <cmath>
#include <filesystem>

#include "layers/audit/attention_audit.h"
#include "layers/model_parameters.h"
#include "tests/train/train_fixture.h"
#include "train/engine/rank_state.h"

namespace ringtrain::testing {
namespace {

class Audit : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    data = write_tokens("text.h5", {});
  }
  Config config(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> settings{
        "training.global_batch_size=4", "training.steps=6", "checkpoint.interval=2", "mesh.data=2", "mesh.sequence=2",
        "training.audit.interval=3"};
    settings.insert(settings.end(), more.begin(), more.end());
    return tiny(data, settings);
  }
  /// Trains; in these steps the first audited row of `tensor` on rank 3 is wrong by `by`.
  Outcome run_broken(const Config& settings, const std::string& output, AuditedTensor tensor, double by) const {
    Outcome outcome;
    const Log log = [&](const std::string& line) { outcome.logs.push_back(line); };
    ringtrain::Run prepared =
        prepare_run({.config = settings, .output = at(output), .start = {}, .stop_after = 0, .trace = {}}, log);
    prepared.before_forward = [&](RankState& state, std::int64_t) {
      if (state.rank != 3) return;
      state.model->audit().before_comparison = [=](AuditedTensor now, const AuditPlace& place, const TensorView& x) {
        if (now != tensor) return;
        const std::int64_t row = tensor == AuditedTensor::logsumexp
                                     ? (place.sequence * x.dim(1) + place.head) * x.dim(2) + place.token
                                     : ((place.sequence * x.dim(1) + place.token) * x.dim(2) + place.head) * x.dim(3);
        x.as<double>()[row] += by;
      };
    };
    outcome.code = train(prepared, log);
    return outcome;
  }
  std::string data;
  const StartRequest resume{.resume = true, .resume_path = "", .init_from = ""};
};

TEST_F(Audit, StopEndsTheRunBeforeTheUpdateAndTheMetricsHaveIt) {
  run(config(), "whole");
  for (const auto& [tensor, name] :
       {std::pair{AuditedTensor::attention, "attention"}, std::pair{AuditedTensor::logsumexp, "logsumexp"},
        std::pair{AuditedTensor::query_gradient, "grad.query"}}) {
    SCOPED_TRACE(name);
    const std::string sentence = error_of(ExitCode::numeric, [&] { run_broken(config(), name, tensor, 0.5); });
    EXPECT_NE(sentence.find("step 3: the audit of attention found"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find(fmt::format(".{} departs at head ", name)), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("made by rank 3 on cpu"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("still those of step 2"), std::string::npos) << sentence;
    const auto lines = metrics(name);
    ASSERT_EQ(lines.size(), 3U);
    EXPECT_FALSE(lines[1].contains("audit"));
    EXPECT_EQ(lines[2].at("audit").at("rows"), 16);
    EXPECT_GT(lines[2].at("audit").at("departures"), 0);
    EXPECT_NE(sentence.find(lines[2].at("audit").at("first").get<std::string>()), std::string::npos);
    // The same run goes on without the fault: the step was none.
    run(config(), name, resume);
    EXPECT_EQ(losses(name), losses("whole"));
    EXPECT_EQ(state(checkpoint(name, 6)), state(checkpoint("whole", 6)));
  }
}

TEST_F(Audit, WarnTellsAndGoesOn) {
  ::testing::internal::CaptureStderr();
  const Outcome outcome =
      run_broken(config({"training.audit.on_failure=warn"}), "run", AuditedTensor::query_gradient, 1e-9);
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(outcome.code, ExitCode::done);
  EXPECT_NE(told.find("warning: step 3: the audit of attention found"), std::string::npos) << told;
  EXPECT_NE(told.find("warning: step 6: the audit of attention found"), std::string::npos) << told;
  const auto lines = metrics("run");
  ASSERT_EQ(lines.size(), 6U);
  for (const auto& line : lines) {
    EXPECT_EQ(line.contains("audit"), line.at("step") == 3 || line.at("step") == 6);
    if (line.contains("audit")) {
      EXPECT_GT(line.at("audit").at("departures"), 0);
    }
  }
}

TEST_F(Audit, ChangesNoBitOfARightRunAndIsPlanned) {
  run(config({"training.audit.interval=0"}), "without");
  for (const std::string recompute : {"none", "keep_attention", "full"}) {
    SCOPED_TRACE(recompute);
    const Config audited =
        config({"training.recompute=" + recompute, "training.audit.interval=1", "training.audit.rows=20",
                "training.audit.on_failure=stop", "training.micro_batch_size=1"});
    EXPECT_EQ(run(audited, recompute).code, ExitCode::done);
    EXPECT_EQ(losses(recompute), losses("without"));
    EXPECT_EQ(state(checkpoint(recompute, 6)), state(checkpoint("without", 6)));
    const ParameterTable table = make_parameter_table(audited.model);
    const std::vector<RankPlan> plans = plan_ranks(audited, table, training_purpose(audited));
    for (const auto& line : metrics(recompute)) {
      EXPECT_EQ(line.at("audit").at("rows"), 80);
      EXPECT_EQ(line.at("audit").at("departures"), 0);
      for (const auto& error : line.at("audit").at("error")) EXPECT_LE(error.get<double>(), 1.0);
    }
    const auto first = metrics(recompute)[0];
    for (const RankPlan& plan : plans) {
      for (const int rank : plan.ranks) {
        EXPECT_EQ(first.at("peak_bytes")[static_cast<std::size_t>(rank)].at("total"), plan.peak.total);
      }
    }
  }
}

TEST_F(Audit, MayBeChangedByAResume) {
  run(config({"training.audit.interval=0"}), "run", {}, 2);
  const Outcome outcome = run(config({"training.audit.rows=7"}), "run", resume);
  EXPECT_EQ(outcome.code, ExitCode::done);
  EXPECT_NE(outcome.logged("training.audit.interval"), "");
  EXPECT_EQ(metrics("run")[5].at("audit").at("rows"), 28);
}

}  // namespace
}  // namespace ringtrain::testing
