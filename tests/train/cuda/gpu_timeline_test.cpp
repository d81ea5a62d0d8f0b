// train --trace on a GPU: rows by the GPU's clock next to the host's, spans that nest, waits that are the GPU's own;
// and it causes no wait of the host, and changes no bit.

#include "tests/support/gpu.h"
#include "tests/train/timeline.h"

namespace ringtrain::testing {
namespace {

class GpuTimeline : public OnGpu<TimelineTest> {
 protected:
  void TearDown() override {
#if defined(RINGTRAIN_CUDA_EMULATED)
    cuda_emulator::set_durations({});
#endif
    TrainTest::TearDown();
  }
  Config config(std::vector<std::string> more) const {
    return tiny(data,
                joined({"training.device=cuda", "training.dtype=bfloat16", "training.seq_len=13", "data.packing=concat",
                        "training.global_batch_size=2", "training.steps=2", "mesh.sequence=2", "mesh.backend=threads"},
                       more));
  }
  static double total(const TimelineRow& row, const std::string& name, const std::string& reason = "") {
    double sum = 0;
    for (const TimelineSpan& span : row.spans) {
      if (span.name == name && (reason.empty() || span.arguments.value("for", "") == reason)) {
        sum += span.end - span.begin;
      }
    }
    return sum * 1e-6;
  }
};

TEST_F(GpuTimeline, HasRowsByTheGpusClock) {
  run_traced(config({}), "run", {.path = at("trace.json")});
  const auto rows = rows_of(at("trace.json"));
  int copies = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string name = fmt::format("sequence rank {}", rank);
    const TimelineRow &host = rows.at({0, name}), &gpu = rows.at({0, name + " GPU"});
    for (const char* const span : {"step", "layer forward", "layer backward", "hop", "attention kernel", "wait"}) {
      EXPECT_EQ(gpu.count(span), host.count(span)) << span;
    }
    EXPECT_EQ(gpu.count("step"), 2u);
    const auto find = [](const TimelineRow& row, const char* what) {
      return std::ranges::find(row.spans, what, &TimelineSpan::name);
    };
    // The clocks agree: the GPU cannot begin before the host has issued the work, and is not seconds behind in such a
    // small run.
    for (const char* const span : {"weights", "step", "optimizer"}) {
      EXPECT_GT(find(gpu, span)->begin, find(host, span)->begin - 2e3) << span;
      EXPECT_LT(find(gpu, span)->begin, find(host, span)->begin + 60e6) << span;
    }
    // Of two ranks, the one that arrives second at a message copies it: it may always be the same one.
    const auto row = rows.find({0, name + " GPU communication"});
    if (row == rows.end()) continue;
    for (const TimelineSpan& span : row->second.spans) {
      EXPECT_GT(span.arguments.at("bytes").get<int>(), 0) << span.name;
      ++copies;
    }
  }
  EXPECT_GT(copies, 0);
}

TEST_F(GpuTimeline, ChangesNoBitOfARun) {
  run(config({}), "plain");
  run_traced(config({}), "traced", {.path = at("trace.json"), .first_step = 2, .last_step = 2});
  EXPECT_EQ(losses("traced"), losses("plain"));
  const auto rows = rows_of(at("trace.json"));
  EXPECT_EQ(rows.at({0, "sequence rank 1 GPU"}).count("step"), 1u);
}

TEST_F(GpuTimeline, ShowsWhatIsOffloaded) {
  run_traced(config({"training.offload=activations+optimizer", "model.num_hidden_layers=5", "mesh.sequence=1"}), "run",
             {.path = at("trace.json")});
  std::map<std::string, int> seen;
  for (const auto& [key, row] : rows_of(at("trace.json"))) {
    if (key.second.find("GPU communication") == std::string::npos) continue;
    for (const TimelineSpan& span : row.spans) ++seen[span.name];
  }
  for (const char* const what :
       {"to host memory", "from host memory", "optimizer state from host memory", "optimizer state to host memory"}) {
    EXPECT_GT(seen[what], 0) << what;
  }
  EXPECT_EQ(seen.size(), 4u);
}

#if defined(RINGTRAIN_CUDA_EMULATED)

TEST_F(GpuTimeline, WaitsAreSeenWhereCommunicationIsSlowAndNotWhereItIsHidden) {
  using std::chrono::microseconds;
  struct Seen {
    double waited = 0, computed = 0, reported = 0;
  };
  const auto look = [&](const std::string& name, microseconds kernel, microseconds copy) {
    cuda_emulator::set_durations({.kernel = kernel, .device_copy = copy});
    run_traced(config({}), name, {.path = at(name + ".json")});
    Seen seen;
    const auto rows = rows_of(at(name + ".json"));
    for (const char* const rank : {"sequence rank 0 GPU", "sequence rank 1 GPU"}) {
      seen.waited += total(rows.at({0, rank}), "wait", "ring keys and values");
      seen.computed += total(rows.at({0, rank}), "attention kernel");
    }
    for (const auto& line : metrics(name)) {
      for (const auto& wait : line.at("ring").at("forward").at("hop_wait_seconds")) seen.reported += wait.get<double>();
    }
    return seen;
  };
  // 2 steps of 2 sequences, 2 layers, forward and backward: each rank waits 16 times for the other's block.
  const Seen slow = look("slow", microseconds(100), microseconds(20000));
  const Seen fast = look("fast", microseconds(2000), microseconds(10));
  EXPECT_GT(slow.waited, 2 * 16 * 0.010);
  EXPECT_GT(slow.reported, 8 * 0.010);  // the mean of the two ranks
  EXPECT_LT(slow.computed, 0.5 * slow.waited);
  EXPECT_GT(fast.computed, 0.5 * 2 * 32 * 0.002);
  EXPECT_LT(fast.waited, 0.25 * slow.waited);
  EXPECT_LT(fast.reported, 0.25 * slow.reported);
}

#endif

}  // namespace
}  // namespace ringtrain::testing
