// The simulation beside the timelines of real runs on thread ranks (train --trace): the same kernel calls with the same
// pairs, and passes as long, be the cores as many as the ranks or fewer. How long a pass took depends on who else uses
// the machine: RINGTRAIN_CALM=1 says that nobody does, and holds it within a tenth; without it the figures are printed.
// And the bytes of the ring's messages, to the byte: of whole blocks, and of what a window leaves of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "framework/config/read_config.h"
#include "framework/cores.h"
#include "layers/check_model.h"
#include "tests/support/folder_test.h"
#include "tests/support/paths.h"
#include "train/planning/step_simulation.h"

namespace ringtrain::testing {
namespace {

using nlohmann::json;

struct Span {
  double begin = 0, end = 0;  // microseconds
  json arguments;
};
struct Row {
  std::vector<Span> forward, backward, kernels, overlaps;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

class TimelineTest : public FolderTest {
 protected:
  void run(const std::string& program, const std::string& arguments) const {
    const std::string command = "cd '" + folder + "' && '" + binary_folder() + "/" + program + "' " + arguments +
                                " >'" + at(program + ".log") + "' 2>&1";
    std::ifstream log(at(program + ".log"));
    ASSERT_EQ(std::system(command.c_str()), 0) << command << std::string(std::istreambuf_iterator<char>(log), {});
  }
  json timeline() const {
    std::ifstream stream(at("trace.json"));
    return json::parse(stream);
  }
};

class SimulatedTimeline : public TimelineTest, public ::testing::WithParamInterface<std::tuple<int, const char*>> {
 protected:
  /// Returns what each ring rank's row of the timeline has.
  std::vector<Row> rows(int ranks) const {
    const json file = timeline();
    std::map<std::int64_t, int> ring_rank;  // by row
    for (const json& event : file.at("traceEvents")) {
      if (event.at("ph") != "M" || event.at("name") != "thread_name") continue;
      for (int rank = 0; rank < ranks; ++rank) {
        if (event.at("args").at("name") == fmt::format("sequence rank {}", rank)) ring_rank[event.at("tid")] = rank;
      }
    }
    std::vector<Row> found(ranks);
    for (const json& event : file.at("traceEvents")) {
      if (event.at("ph") != "X" || !ring_rank.contains(event.at("tid"))) continue;
      Row& row = found[ring_rank.at(event.at("tid"))];
      const double begin = event.at("ts");
      const Span span{begin, begin + event.at("dur").get<double>(), event.value("args", json::object())};
      const std::string name = event.at("name");
      if (name == "ring forward") row.forward.push_back(span);
      if (name == "ring backward") row.backward.push_back(span);
      if (name == "attention kernel") row.kernels.push_back(span);
      if (name == "query backward") row.overlaps.push_back(span);
    }
    return found;
  }
};

/// What the timeline has of passes.
struct Measured {
  double pair_seconds = 0, overlap_seconds = 0;  // of a kernel's pair; of a rank's other work in a pass
  std::int64_t calls = 0, pairs = 0;             // of one pass, over all ranks
  std::vector<std::vector<double>> begins;       // [pass][rank], seconds
  double pass_seconds = 0;                       // of a rank: mean over ranks, median over passes
};
Measured measure(const std::vector<Row>& rows, bool backward) {
  Measured measured;
  double seconds = 0, pairs = 0, overlap = 0, calls = 0;
  const auto spans = [&](const Row& row) -> const std::vector<Span>& { return backward ? row.backward : row.forward; };
  const std::size_t passes = spans(rows[0]).size();
  std::vector<double> lengths(passes, 0.0);
  measured.begins.resize(passes);
  for (const Row& row : rows) {
    EXPECT_EQ(spans(row).size(), passes);
    for (std::size_t i = 0; i < passes; ++i) {
      const Span& pass = spans(row)[i];
      lengths[i] += (pass.end - pass.begin) * 1e-6 / static_cast<double>(rows.size());
      measured.begins[i].push_back(pass.begin * 1e-6);
      const auto within = [&](const Span& span) { return span.begin >= pass.begin && span.end <= pass.end; };
      for (const Span& kernel : row.kernels) {
        if (!within(kernel)) continue;
        seconds += (kernel.end - kernel.begin) * 1e-6;
        pairs += kernel.arguments.at("pairs").get<double>();
        ++calls;
      }
      for (const Span& other : row.overlaps) {
        if (within(other)) overlap += (other.end - other.begin) * 1e-6;
      }
    }
  }
  const auto count = static_cast<double>(passes);
  measured.pair_seconds = seconds / pairs;
  measured.overlap_seconds = overlap / count / static_cast<double>(rows.size());
  measured.calls = std::llround(calls / count);
  measured.pairs = std::llround(pairs / count);
  measured.pass_seconds = median(lengths);
  return measured;
}

TEST_P(SimulatedTimeline, IsThatOfARun) {
#ifdef RINGTRAIN_SANITIZED
  GTEST_SKIP() << "sanitizers change what everything costs";
#endif
  const auto [ranks, layout] = GetParam();
  run("prepare", "--synthetic recall --documents 12 --length 9000 --output corpus.h5");
  const auto settings_of = [&](int ring) {
    return std::vector<std::string>{fmt::format("mesh.sequence={}", ring),
                                    fmt::format("mesh.layout={}", layout),
                                    "mesh.threads_per_rank=1",
                                    "training.seq_len=8192",
                                    "training.steps=7",
                                    "data.packing=concat",
                                    "checkpoint.interval=0"};
  };
  const auto timeline_of = [&](int ring) {
    std::string arguments = "--config '" + source_folder() + "/configs/long_ctx.yaml' --output run" +
                            std::to_string(ring) + " --trace trace.json --trace-steps 2:7";
    for (const std::string& setting : settings_of(ring)) arguments += " --set " + setting;
    run("train", arguments);
    return rows(ring);
  };
  const Config config =
      read_config(source_folder() + "/configs/long_ctx.yaml", settings_of(ranks), ConfigUse::know, check_model);
  const RingWork work = ring_work(config, {.causal = true, .window = config.model.sliding_window}, 0, 1);
  Hardware hardware;
  hardware.levels = {{.ranks = 64, .bandwidth = 4e9, .latency = 2e-5}};  // a copy between threads
  // What a core does is known from a ring that has one for each rank; more ranks than cores share them.
  const int cores = available_cores(), alone = std::min(ranks, cores);
  const SharedProcessors processors{
      .cores = static_cast<double>(cores), .threads = 1, .ranks = static_cast<double>(ranks)};
  const std::vector<Row> undisturbed = timeline_of(alone);
  const std::vector<Row> timeline = alone == ranks ? undisturbed : timeline_of(ranks);
  for (const bool backward : {false, true}) {
    const Measured base = measure(undisturbed, backward), measured = measure(timeline, backward);
    EXPECT_EQ(measured.pairs, work.all_pairs());
    const PassCosts costs{
        .pair_seconds = base.pair_seconds / processors.cores_of_rank(),
        .key_value_bytes = key_value_bytes(config.model, config.training.dtype),
        .gradient_bytes = backward ? key_value_gradient_bytes(config.model, config.training.dtype) : 0,
        .overlap_seconds = base.overlap_seconds * alone / ranks / processors.cores_of_rank()};
    const Disturbance none;
    const RingSimulation simulation(work, hardware, 0, none, processors);
    std::vector<double> lengths;
    std::int64_t events = 0;
    for (const std::vector<double>& begins : measured.begins) {  // ranks come to a pass as they came to it in the run
      std::vector<double> clocks = begins;
      events = simulation.pass(costs, clocks, 0).events;
      double length = 0;
      for (std::size_t rank = 0; rank < clocks.size(); ++rank) length += clocks[rank] - begins[rank];
      lengths.push_back(length / ranks);
    }
    std::int64_t calls = 0;  // the run's kernels of a pass; a message is between two ranks
    for (int rank = 0; rank < ranks; ++rank) {
      for (int hop = 0; hop < ranks; ++hop) {
        const auto step = work.step(rank, hop);
        if (!step) continue;
        if (!backward) ++calls;
        for (int part = 0; backward && part < work.parts(); ++part) calls += work.pairs(rank, step->owner, part) > 0;
      }
    }
    EXPECT_EQ(measured.calls, calls) << (backward ? "backward" : "forward");
    EXPECT_GT(events, calls);
    const double simulated = median(lengths);
    std::printf("%d ranks, %s, %s: simulated %.3f ms, measured %.3f ms: %+.1f %%\n", ranks, layout,
                backward ? "backward" : "forward", simulated * 1e3, measured.pass_seconds * 1e3,
                100 * (simulated / measured.pass_seconds - 1));
    if (std::getenv("RINGTRAIN_CALM") != nullptr) {
      EXPECT_NEAR(simulated / measured.pass_seconds, 1, 0.1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rings, SimulatedTimeline,
                         ::testing::Combine(::testing::Values(2, 4),
                                            ::testing::Values("zigzag", "striped", "contiguous")),
                         [](const auto& test) {
                           return fmt::format("{}{}", std::get<0>(test.param), std::get<1>(test.param));
                         });

class SimulatedBytes : public TimelineTest {};

TEST_F(SimulatedBytes, AreThoseOfARun) {
  run("prepare", "--synthetic recall --documents 4 --length 1000 --output corpus.h5");
  for (const auto& [ranks, layout, window] : {std::tuple{2, "zigzag", 0},
                                              {4, "striped", 0},
                                              {4, "contiguous", 0},
                                              {8, "contiguous", 50},
                                              {8, "zigzag", 50},
                                              {4, "striped", 50},
                                              {2, "contiguous", 200},
                                              {4, "zigzag", 100}}) {
    SCOPED_TRACE(fmt::format("{} ranks, {}, window {}", ranks, layout, window));
    std::vector<std::string> settings{fmt::format("mesh.sequence={}", ranks),
                                      fmt::format("mesh.layout={}", layout),
                                      "training.seq_len=515",
                                      "training.steps=1",
                                      "training.global_batch_size=1",
                                      "data.packing=concat",
                                      "checkpoint.interval=0"};
    if (window > 0) {
      settings.insert(settings.end(), {"model.architecture=mistral", fmt::format("model.sliding_window={}", window)});
    }
    const std::string config_file = source_folder() + "/configs/tiny.yaml";
    std::string arguments = "--config '" + config_file + "' --output run --overwrite --trace trace.json";
    for (const std::string& setting : settings) arguments += " --set " + setting;
    std::filesystem::remove_all(at("run"));
    std::filesystem::remove(at("trace.json"));
    run("train", arguments);
    std::map<std::string, std::int64_t> sent;
    const json traced = timeline();
    for (const json& event : traced.at("traceEvents")) {
      if (event.at("ph") != "X" || !event.contains("args") || !event.at("args").contains("to")) continue;
      if (event.at("args").at("to").get<int>() < 0) continue;
      sent[event.at("name")] += event.at("args").at("bytes").get<std::int64_t>();
    }
    const Config config = read_config(config_file, settings, ConfigUse::know, check_model);
    const RingWork work = ring_work(config, {.causal = true, .window = window}, 0, 1);
    Hardware hardware;
    hardware.levels = {{.ranks = 64, .bandwidth = 4e9, .latency = 2e-5}};
    const Disturbance none;
    const RingSimulation simulation(work, hardware, 0, none);
    const auto simulated = [&](double key_value, double gradient) {
      std::vector<double> clocks(static_cast<std::size_t>(ranks), 0.0);
      const PassCosts costs{.pair_seconds = 1e-9, .key_value_bytes = key_value, .gradient_bytes = gradient};
      return static_cast<double>(config.model.num_hidden_layers) * simulation.pass(costs, clocks, 0).bytes;
    };
    // Keys and values go round in both passes.
    const DType dtype = config.training.dtype;
    const double forward = simulated(key_value_bytes(config.model, dtype), 0);
    const double both = simulated(key_value_bytes(config.model, dtype), key_value_gradient_bytes(config.model, dtype));
    EXPECT_EQ(static_cast<double>(sent["ring keys and values"]), 2 * forward);
    EXPECT_EQ(static_cast<double>(sent["ring gradients"]), both - forward);
    EXPECT_GT(forward, 0);
  }
}

}  // namespace
}  // namespace ringtrain::testing
