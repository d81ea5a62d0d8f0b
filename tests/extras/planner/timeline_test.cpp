// Compares the simulation with the timelines of real runs on thread ranks (train --trace): the same kernel calls with
// the same pairs, and exactly the same bytes of the ring's messages: of whole blocks, of what a window leaves of them,
// and of stacks with different layers; in the simulation, and in the output of `plan`.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "extras/planner/plan_report.h"
#include "extras/planner/step_simulation.h"
#include "framework/config/config.h"
#include "framework/config/read_config.h"
#include "framework/profile/progress.h"
#include "layers/check_model.h"
#include "layers/model_spec.h"
#include "tests/support/folder_test.h"
#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

using nlohmann::json;

struct Span {
  double begin = 0, end = 0;  // microseconds
  std::int64_t pairs = 0;     // of a kernel
};
struct Row {
  std::vector<Span> forward, backward, kernels;
};

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
  /// Returns the content of each ring rank's row of the timeline.
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
      const Span span{begin, begin + event.at("dur").get<double>(),
                      event.value("args", json::object()).value("pairs", std::int64_t{0})};
      const std::string name = event.at("name");
      if (name == "ring forward") row.forward.push_back(span);
      if (name == "ring backward") row.backward.push_back(span);
      if (name == "attention kernel") row.kernels.push_back(span);
    }
    return found;
  }
};

/// Kernel calls of one pass, over all ranks, and their pairs.
struct Calls {
  std::int64_t calls = 0, pairs = 0;
};
Calls calls_of_a_pass(const std::vector<Row>& rows, bool backward) {
  Calls all;
  std::int64_t passes = 0;
  for (const Row& row : rows) {
    for (const Span& pass : backward ? row.backward : row.forward) {
      ++passes;
      for (const Span& kernel : row.kernels) {
        if (kernel.begin < pass.begin || kernel.end > pass.end) continue;
        ++all.calls;
        all.pairs += kernel.pairs;
      }
    }
  }
  const std::int64_t of_a_rank = passes / std::ssize(rows);
  return {all.calls / of_a_rank, all.pairs / of_a_rank};
}

TEST_P(SimulatedTimeline, HasTheCallsOfARun) {
  const auto [ranks, layout] = GetParam();
  run("prepare", "--synthetic recall --documents 12 --length 9000 --output corpus.h5");
  const std::vector<std::string> settings{fmt::format("mesh.sequence={}", ranks),
                                          fmt::format("mesh.layout={}", layout),
                                          "mesh.threads_per_rank=1",
                                          "training.seq_len=8192",
                                          "training.steps=3",
                                          "data.packing=concat",
                                          "checkpoint.interval=0"};
  const std::string config_file = source_folder() + "/configs/long_ctx.yaml";
  std::string arguments = "--config '" + config_file + "' --output run --trace trace.json --trace-steps 2:3";
  for (const std::string& setting : settings) arguments += " --set " + setting;
  run("train", arguments);
  const std::vector<Row> timeline = rows(ranks);
  const Config config = read_config(config_file, settings, ConfigUse::know, check_model);
  const RingWork work = ring_work(config, {.causal = true, .window = config.model.sliding_window}, 0);
  for (const bool backward : {false, true}) {
    std::int64_t calls = 0, pairs = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      for (int hop = 0; hop < ranks; ++hop) {
        const auto step = work.step(rank, hop);
        if (!step) continue;
        pairs += work.pairs(rank, step->owner);
        if (!backward) ++calls;
        for (int part = 0; backward && part < work.parts(); ++part) calls += work.pairs(rank, step->owner, part) > 0;
      }
    }
    const Calls traced = calls_of_a_pass(timeline, backward);
    EXPECT_EQ(traced.pairs, pairs);
    EXPECT_EQ(traced.calls, calls) << (backward ? "backward" : "forward");
  }
}

INSTANTIATE_TEST_SUITE_P(Rings, SimulatedTimeline,
                         ::testing::Combine(::testing::Values(2, 4),
                                            ::testing::Values("zigzag", "striped", "contiguous")),
                         [](const auto& test) {
                           return fmt::format("{}{}", std::get<0>(test.param), std::get<1>(test.param));
                         });

/// A run whose ring's messages are counted: all layers have one mask, or masks alternate.
struct RingRun {
  int ranks = 2, data = 1;
  const char* layout = "zigzag";
  int window = 0;
  bool mixed = false;          // every second of three layers has the window
  std::int64_t document = 0;   // tokens of each document; 0: documents do not count
  std::int64_t sequences = 1;  // of a micro-batch
  std::int64_t micro_batches = 1;
  const char* recompute = "none";

  static constexpr std::int64_t length = 515;

  std::string name() const {
    return fmt::format("{} x {} ranks, {}, window {}{}, documents of {}, {} sequences", data, ranks, layout, window,
                       mixed ? " of some layers" : "", document, sequences);
  }
  std::vector<std::string> settings() const {
    std::vector<std::string> all{fmt::format("mesh.data={}", data),
                                 fmt::format("mesh.sequence={}", ranks),
                                 fmt::format("mesh.layout={}", layout),
                                 fmt::format("training.seq_len={}", length),
                                 "training.steps=1",
                                 fmt::format("training.micro_batch_size={}", sequences),
                                 fmt::format("training.global_batch_size={}", data * sequences * micro_batches),
                                 fmt::format("training.recompute={}", recompute),
                                 fmt::format("data.packing={}", document > 0 ? "documents" : "concat"),
                                 "checkpoint.interval=0"};
    if (window > 0) {
      all.insert(all.end(), {"model.architecture=mistral", fmt::format("model.sliding_window={}", window)});
    }
    if (mixed) {
      all.insert(all.end(), {"model.num_hidden_layers=3", "model.layer_types=[full_attention,sliding_attention]"});
    }
    return all;
  }
};

/// The bytes that ranks send for a layer. Ids of documents are sent with keys and values.
struct LayerBytes {
  std::int64_t keys_and_values = 0, gradients = 0;
};

class RingBytes : public TimelineTest {
 protected:
  const std::string config_file = source_folder() + "/configs/tiny.yaml";

  std::string arguments_of(const RingRun& run) const {
    std::string arguments = "--config '" + config_file + "'";
    for (const std::string& setting : run.settings()) arguments += " --set '" + setting + "'";
    return arguments;
  }
  Config config_of(const RingRun& run) const {
    return read_config(config_file, run.settings(), ConfigUse::know, check_model);
  }
  /// Trains a step. Returns the bytes of its timeline, by layer.
  std::map<std::int64_t, LayerBytes> sent_by(const RingRun& of) const {
    const std::int64_t document = of.document > 0 ? of.document : RingRun::length;
    const std::string corpus = fmt::format("corpus{}.h5", document);
    if (!std::filesystem::exists(at(corpus))) {
      std::ofstream texts(at("texts.jsonl"));  // of bytes, and one token that ends them
      for (int i = 0; i < 100; ++i)
        texts << json{{"text", std::string(static_cast<std::size_t>(document) - 1, 'a')}} << "\n";
      texts.close();
      run("prepare", "--input texts.jsonl --validation-fraction 0 --output " + corpus);
    }
    std::filesystem::remove_all(at("run"));
    std::filesystem::remove(at("trace.json"));
    run("train", arguments_of(of) + " --set data.train=" + corpus + " --output run --trace trace.json");
    std::map<std::int64_t, LayerBytes> sent;
    const json traced = timeline();
    for (const json& event : traced.at("traceEvents")) {
      if (event.at("ph") != "X" || !event.contains("args") || !event.at("args").contains("to")) continue;
      const json& arguments = event.at("args");
      if (arguments.at("to").get<int>() < 0) continue;
      const auto bytes = arguments.at("bytes").get<std::int64_t>();
      const std::string name = event.at("name");
      if (name == "ring gradients") sent[arguments.at("layer")].gradients += bytes;
      if (name == "ring keys and values" || name == "ring document ids") {
        sent[arguments.at("layer")].keys_and_values += bytes;
      }
    }
    return sent;
  }
};

class SimulatedBytes : public RingBytes {};

TEST_F(SimulatedBytes, AreThoseOfARun) {
  for (const RingRun& of :
       {RingRun{.ranks = 2}, RingRun{.ranks = 4, .layout = "striped"}, RingRun{.ranks = 4, .layout = "contiguous"},
        RingRun{.ranks = 8, .layout = "contiguous", .window = 50}, RingRun{.ranks = 8, .window = 50},
        RingRun{.ranks = 4, .layout = "striped", .window = 50},
        RingRun{.ranks = 2, .layout = "contiguous", .window = 200}, RingRun{.ranks = 4, .window = 100},
        RingRun{.ranks = 8, .layout = "contiguous", .window = 50, .mixed = true},
        RingRun{.ranks = 5, .window = 60, .mixed = true}, RingRun{.ranks = 6, .layout = "contiguous", .document = 103},
        RingRun{.ranks = 8, .document = 103}, RingRun{.ranks = 8, .window = 40, .mixed = true, .document = 103},
        RingRun{.ranks = 4, .layout = "striped", .window = 40, .document = 103},
        RingRun{.ranks = 4, .layout = "contiguous", .document = 103, .sequences = 3},
        RingRun{.ranks = 4, .window = 50, .mixed = true, .document = 103, .sequences = 2},
        RingRun{.ranks = 3, .window = 100, .sequences = 2}}) {
    SCOPED_TRACE(of.name());
    const std::map<std::int64_t, LayerBytes> sent = sent_by(of);
    const Config config = config_of(of);
    DocumentStarts documents;  // windows of 515 tokens begin with one
    for (std::int64_t start = 0; of.document > 0 && start < RingRun::length; start += of.document) {
      documents.push_back(start);
    }
    const DType dtype = config.training.dtype;
    const double key_value = key_value_bytes(config.model, dtype) + (of.document > 0 ? 4 : 0);
    const double gradient = key_value_bytes(config.model, accumulator(dtype));
    for (const MaskedLayers& layers : layers_by_mask(config.model)) {
      const RingWork work({.mask = layers.mask,
                           .layout = config.mesh.layout,
                           .length = RingRun::length,
                           .ranks = of.ranks,
                           .sequences = of.sequences,
                           .documents = documents,
                           .min_part = default_min_part(Device::cpu(), config.model.num_key_value_heads)});
      const RingTokens tokens = work.sent();
      EXPECT_GT(tokens.keys, 0);
      for (const std::int64_t layer : layers.layers) {
        // Keys and values are sent around in both passes.
        EXPECT_EQ(static_cast<double>(sent.at(layer).keys_and_values), 2 * tokens.keys * key_value) << layer;
        EXPECT_EQ(static_cast<double>(sent.at(layer).gradients), tokens.gradients * gradient) << layer;
      }
    }
  }
}

class PlannedBytes : public RingBytes {};

/// The plan's sums over layers and micro-batches, and the program's output, not only the ring's work.
TEST_F(PlannedBytes, AreThoseOfARun) {
  for (const RingRun& of :
       {RingRun{.ranks = 4}, RingRun{.ranks = 5, .layout = "contiguous", .window = 60, .mixed = true},
        RingRun{.ranks = 4, .data = 2, .window = 50, .mixed = true, .micro_batches = 3, .recompute = "full"},
        RingRun{.ranks = 3, .window = 50, .mixed = true, .sequences = 2, .micro_batches = 2},
        RingRun{.ranks = 4, .layout = "striped", .window = 50, .mixed = true, .document = RingRun::length}}) {
    SCOPED_TRACE(of.name());
    LayerBytes all;
    for (const auto& [layer, bytes] : sent_by(of)) {
      all.keys_and_values += bytes.keys_and_values;
      all.gradients += bytes.gradients;
    }
    const Plan plan = make_plan({.config = config_of(of),
                                 .hardware = read_hardware(source_folder() + "/configs/hardware/h100.yaml"),
                                 .longest_context = false});
    EXPECT_EQ(plan.key_value_bytes, static_cast<double>(all.keys_and_values));
    EXPECT_EQ(plan.gradient_bytes, static_cast<double>(all.gradients));
    EXPECT_GT(plan.hop.tokens_to_hide, 0);  // of the layers without a window
    const std::string line = fmt::format("in each step the ring sends {} of keys and values, and {} of their gradients",
                                         human_bytes(plan.key_value_bytes), human_bytes(plan.gradient_bytes));
    EXPECT_NE(plan_report(plan).find(line), std::string::npos) << plan_report(plan);
  }
}

}  // namespace
}  // namespace ringtrain::testing
