// The audit of attention in whole runs (training.audit): a wrong element on one rank of 2 x 2 ends the run before the
// update, or is reported and skipped; metrics contain it; a correct run is not changed by it; a resume may change it.
#include "layers/audit/attention_audit.h"
#include "tests/train/train_fixture.h"
#include "train/engine/rank_state.h"

namespace ringtrain::testing {
namespace {

class Audit : public TextTest {
 protected:
  Config config(const std::vector<std::string>& more = {}) const {
    return tiny(data, joined({"training.global_batch_size=4", "training.steps=6", "checkpoint.interval=2",
                              "mesh.data=2", "mesh.sequence=2", "training.audit.interval=3"},
                             more));
  }
  /// Trains; in these steps, the first audited row of `tensor` on rank 3 is wrong by `by`.
  Outcome run_broken(const Config& settings, const std::string& output, AuditedTensor tensor, double by) const {
    return run_with({.config = settings, .output = at(output)}, [=](RankState& state, std::int64_t) {
      if (state.rank != 3) return;
      state.model->audit().before_comparison = [=](AuditedTensor now, const AuditLocation& location,
                                                   const TensorView& x) {
        if (now != tensor) return;
        const std::int64_t row =
            tensor == AuditedTensor::logsumexp
                ? (location.sequence * x.dim(1) + location.head) * x.dim(2) + location.token
                : ((location.sequence * x.dim(1) + location.token) * x.dim(2) + location.head) * x.dim(3);
        x.as<double>()[row] += by;
      };
    });
  }
};

TEST_F(Audit, StopEndsTheRunBeforeTheUpdateAndTheMetricsHaveIt) {
  run(config(), "whole");
  for (const auto& [tensor, name] :
       {std::pair{AuditedTensor::attention, "attention"}, std::pair{AuditedTensor::logsumexp, "logsumexp"},
        std::pair{AuditedTensor::query_gradient, "grad.query"}}) {
    SCOPED_TRACE(name);
    const std::string sentence = error_of(ExitCode::numeric, [&] { run_broken(config(), name, tensor, 0.5); });
    EXPECT_TRUE(holds_all(sentence, {"step 3: the audit of attention found", fmt::format(".{} differs at head ", name),
                                     "computed by rank 3 on cpu", "still those of step 2"}));
    const auto lines = metrics(name);
    ASSERT_EQ(lines.size(), 3U);
    EXPECT_FALSE(lines[1].contains("audit"));
    EXPECT_EQ(lines[2].at("audit").at("rows"), 16);
    EXPECT_GT(lines[2].at("audit").at("departures"), 0);
    EXPECT_TRUE(holds(sentence, lines[2].at("audit").at("first").get<std::string>()));
    // The same run continues without the fault: the step did not count.
    run(config(), name, resumed());
    expect_same_bits(name, "whole");
  }
}

TEST_F(Audit, WarnLogsAndContinues) {
  ::testing::internal::CaptureStderr();
  const Outcome outcome =
      run_broken(config({"training.audit.on_failure=warn"}), "run", AuditedTensor::query_gradient, 1e-9);
  const std::string progress = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(outcome.code, ExitCode::done);
  EXPECT_TRUE(holds(progress, "warning: step 3: the audit of attention found"));
  EXPECT_TRUE(holds(progress, "warning: step 6: the audit of attention found"));
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
    expect_same_bits(recompute, "without");
    for (const auto& line : metrics(recompute)) {
      EXPECT_EQ(line.at("audit").at("rows"), 80);
      EXPECT_EQ(line.at("audit").at("departures"), 0);
      for (const auto& error : line.at("audit").at("error")) EXPECT_LE(error.get<double>(), 1.0);
    }
    expect_planned_peaks(recompute, audited);
  }
}

TEST_F(Audit, MayBeChangedByAResume) {
  run(config({"training.audit.interval=0"}), "run", {}, 2);
  const Outcome outcome = run(config({"training.audit.rows=7"}), "run", resumed());
  EXPECT_EQ(outcome.code, ExitCode::done);
  EXPECT_NE(outcome.logged("training.audit.interval"), "");
  EXPECT_EQ(metrics("run")[5].at("audit").at("rows"), 28);
}

}  // namespace
}  // namespace ringtrain::testing
