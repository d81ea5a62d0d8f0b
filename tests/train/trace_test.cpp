// train --trace on whole runs: the file is JSON, spans of a row are nested, there is one span for each hop of the plan,
// waits belong to hops; the run itself does not change, to the bit. A failed run also leaves its timeline.
#include <algorithm>
#include <map>
#include <tuple>

#include "layers/model_spec.h"
#include "parallel/ring/ring_schedule.h"
#include "tests/support/shards.h"
#include "tests/train/child_process.h"
#include "tests/train/timeline.h"
#include "train/trace_file.h"

namespace ringtrain::testing {
namespace {

using nlohmann::json;

class Timeline : public TimelineTest {
 protected:
  /// Returns how many blocks a ring rank meets in a pass, according to the plan.
  static std::size_t planned_hops(const Config& config, int ring_rank) {
    const int N = static_cast<int>(config.mesh.sequence);
    const Shards shards = shards_of(config.mesh.layout, config.training.seq_len, N);
    const std::vector<char> needed = ring_needs(layers_by_mask(config.model).front().mask, shards.extents);
    return std::count(&needed[ring_rank * N], &needed[ring_rank * N] + N, 1);
  }
};

class TimelineOnMeshes : public Timeline, public ::testing::WithParamInterface<std::tuple<int, int, const char*>> {};

TEST_P(TimelineOnMeshes, ShowsEveryHopOfThePlanAndItsWaits) {
  const auto [data_ranks, sequence, layout] = GetParam();
  const Config config =
      tiny(data, joined(mesh_of(data_ranks, sequence),
                        {fmt::format("mesh.layout={}", layout), "training.steps=3", "training.global_batch_size=4",
                         "data.packing=concat", "training.recompute=full", "checkpoint.interval=2"}));
  const Outcome outcome = run_traced(config, "run", {.path = at("trace.json")});
  EXPECT_NE(outcome.logged("timeline is in " + at("trace.json")), "");
  const auto rows = rows_of(at("trace.json"));
  const std::size_t steps = 3, micro = static_cast<std::size_t>(4 / data_ranks), layers = 2;
  for (const auto& [key, row] : rows) EXPECT_FALSE(holds(row.name, "GPU"));
  std::size_t traffic = 0;
  for (int d = 0; d < data_ranks; ++d) {
    for (int s = 0; s < sequence; ++s) {
      SCOPED_TRACE(fmt::format("data rank {}, sequence rank {}", d, s));
      const TimelineRow& row = rows.at({d, fmt::format("sequence rank {}", s)});
      EXPECT_EQ(row.count("step"), steps);
      EXPECT_EQ(row.count("micro-batch"), steps * micro);
      EXPECT_EQ(row.count("layer forward"), steps * micro * layers);
      EXPECT_EQ(row.count("layer backward"), steps * micro * layers);
      EXPECT_EQ(row.count("recompute"), steps * micro * layers);
      EXPECT_EQ(row.count("ring forward"), 2 * steps * micro * layers);  // and again in recompute
      EXPECT_EQ(row.count("ring backward"), steps * micro * layers);
      EXPECT_EQ(row.count("head"), steps * micro);
      EXPECT_EQ(row.count("gradient reduction"), steps);
      EXPECT_EQ(row.count("optimizer"), steps);
      EXPECT_EQ(row.count("checkpoint"), 2u);
      EXPECT_EQ(row.count("hop"), 3 * steps * micro * layers * planned_hops(config, s));
      EXPECT_EQ(row.count("attention kernel"), row.count("hop"));
      for (std::size_t i = 0; i < row.spans.size(); ++i) {
        const TimelineSpan& span = row.spans[i];
        if (span.name == "hop") {
          EXPECT_TRUE(row.within(i, "ring forward") || row.within(i, "ring backward"));
          EXPECT_EQ(span.arguments.at("owner").get<int>(),
                    (s - span.arguments.at("hop").get<int>() + sequence) % sequence);
          EXPECT_GE(span.arguments.at("tokens").get<int>(), 37 / sequence);
        }
        if (span.name == "attention kernel") {
          EXPECT_TRUE(row.within(i, "hop"));
          const bool backward =
              row.within(i, "ring backward");  // 2 products of 2 flops forward, 5 backward; 4 heads of 4
          EXPECT_EQ(span.arguments.at("flops").get<int>(),
                    span.arguments.at("pairs").get<int>() * (backward ? 160 : 64));
        }
        if (span.name == "wait" && span.arguments.at("for").get<std::string>().starts_with("ring ")) {
          EXPECT_TRUE(row.within(i, "ring forward") || row.within(i, "ring backward"));
          const int hop = span.arguments.at("hop");
          EXPECT_TRUE(hop >= 0 && hop < sequence);
          if (row.within(i, "hop")) {  // the hop that it delays: keys of this one, gradients of the previous one
            const TimelineSpan& around = row.spans[span.parent];
            const bool gradients = span.arguments.at("for") == "ring gradients";
            EXPECT_EQ(around.arguments.at("hop").get<int>() - hop, gradients ? 1 : 0);
          }
        }
      }
      for (const auto& [key, other] : rows) {
        if (key.first == d && key.second.starts_with(fmt::format("sequence rank {} communication", s))) {
          traffic += other.count("ring keys and values");
          for (const TimelineSpan& span : other.spans)
            EXPECT_EQ(span.parent, -1) << "exchanges of a row do not overlap";
        }
      }
    }
  }
  EXPECT_EQ(traffic > 0, sequence > 1);
  // The pairs of all ranks in one pass are the triangle.
  if (sequence > 1) {
    std::int64_t pairs = 0;
    for (int s = 0; s < sequence; ++s) {
      const TimelineRow& row = rows.at({0, fmt::format("sequence rank {}", s)});
      for (std::size_t i = 0; i < row.spans.size(); ++i) {
        if (row.spans[i].name == "attention kernel") pairs += row.spans[i].arguments.at("pairs").get<std::int64_t>();
      }
    }
    EXPECT_EQ(pairs, static_cast<std::int64_t>(3 * steps * micro * layers) * (37 * 38 / 2));
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, TimelineOnMeshes,
                         ::testing::Values(std::tuple(1, 1, "zigzag"), std::tuple(1, 2, "zigzag"),
                                           std::tuple(1, 4, "zigzag"), std::tuple(2, 2, "zigzag"),
                                           std::tuple(1, 4, "contiguous"), std::tuple(2, 1, "zigzag")),
                         [](const auto& test) {
                           return fmt::format("{}x{}{}", std::get<0>(test.param), std::get<1>(test.param),
                                              std::get<2>(test.param));
                         });

TEST_F(Timeline, ChangesNoBitAndIsOnlyThereWhenAskedFor) {
  const Config config =
      tiny(data, {"training.steps=4", "training.global_batch_size=4", "mesh.data=2", "mesh.sequence=2"});
  run(config, "plain");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 3);  // text, its manifest, the run
  run_traced(config, "traced", {.path = at("trace.json")});
  expect_same_bits("plain", "traced");
}

TEST_F(Timeline, HoldsTheStepsThatWereAskedFor) {
  const Config config =
      tiny(data, {"training.steps=4", "training.global_batch_size=2", "mesh.sequence=2", "checkpoint.interval=1"});
  run_traced(config, "run", {.path = at("trace.json"), .first_step = 2, .last_step = 3});
  const auto rows = rows_of(at("trace.json"));
  for (const char* name : {"sequence rank 0", "sequence rank 1"}) {
    const TimelineRow& row = rows.at({0, name});
    std::vector<std::pair<std::string, int>> outermost;
    for (const TimelineSpan& span : row.spans) {
      if (span.arguments.contains("step")) outermost.emplace_back(span.name, span.arguments.at("step").get<int>());
    }
    EXPECT_EQ(outermost, (std::vector<std::pair<std::string, int>>{
                             {"step", 2}, {"checkpoint", 2}, {"step", 3}, {"checkpoint", 3}}));
  }
}

TEST_F(Timeline, ShowsGathersAndReductionsUnderTheAttentionOfTheLayerBefore) {
  constexpr int layers = 4;
  const Config config =
      tiny(data, {fmt::format("model.num_hidden_layers={}", layers), "mesh.sequence=3", "training.steps=2",
                  "training.global_batch_size=1", "training.shard=weights", "training.recompute=full"});
  run_traced(config, "run", {.path = at("trace.json"), .first_step = 2, .last_step = 2});
  const auto rows = rows_of(at("trace.json"));
  for (int rank = 0; rank < 3; ++rank) {
    const std::string name = fmt::format("sequence rank {}", rank);
    std::map<std::pair<std::string, int>, TimelineSpan> attention;  // by the enclosing span and its layer
    const TimelineRow& work = rows.at({0, name});
    for (const TimelineSpan& span : work.spans) {
      if (span.name != "attention" && span.name != "attention backward") continue;
      const TimelineSpan& around = work.spans[static_cast<std::size_t>(span.parent)];
      const bool recomputed = span.name == "attention" && around.name == "layer backward";
      if (around.arguments.contains("layer") && !recomputed) {
        attention.emplace(std::pair(around.name, around.arguments.at("layer").get<int>()), span);
      }
    }
    const auto expect_under = [&](const TimelineSpan& move, const char* pass, int layer) {
      const TimelineSpan& span = attention.at({pass, layer});
      EXPECT_LE(move.begin, span.begin) << move.name << " " << move.arguments << " under " << pass << " " << layer;
      EXPECT_GE(move.end, span.end) << move.name << " " << move.arguments << " under " << pass << " " << layer;
    };
    // A bucket is the embedding, a layer, or the head: layer l is bucket l + 1. Two buckets are kept at a time, so the
    // two that the previous pass left are not gathered again.
    int forward = 0, backward = 0, reductions = 0;
    for (const auto& [key, row] : rows) {
      if (!key.second.starts_with(name + " communication")) continue;
      for (const TimelineSpan& move : row.spans) {
        if (!move.arguments.contains("layer")) continue;
        const int bucket = move.arguments.at("layer");
        if (move.name == "gathering the weights of a bucket") {
          if (move.begin >= attention.at({"layer backward", layers - 1}).end) {
            expect_under(move, "layer backward", bucket);
            ++backward;
          } else if (bucket >= 2) {
            expect_under(move, "layer forward", bucket - 2);
            ++forward;
          }
        } else if (move.name == "gradient reduction of a bucket" && bucket >= 2) {
          expect_under(move, "layer backward", bucket - 2);
          ++reductions;
        }
      }
    }
    constexpr int exchanges = 2;  // for 3 ranks, for each gather and each reduction
    EXPECT_GE(forward, exchanges * (layers - 1));
    EXPECT_EQ(backward, exchanges * (layers - 2));
    EXPECT_EQ(reductions, exchanges * layers);
  }
}

TEST_F(Timeline, OfARunThatFailsIsThereToo) {
  const Config config = tiny(data, {"mesh.sequence=2"});
  const auto spoil = [](RankState& state, std::int64_t step) {
    if (step == 5) state.optimizer->weights(state.optimizer->slices().back()).as<double>()[0] = NAN;
  };
  const TrainOptions options{.config = config, .output = at("run"), .trace = {.path = at("trace.json")}};
  error_of(ExitCode::numeric, [&] { run_with(options, spoil); });
  const std::size_t done = metrics("run").size();
  EXPECT_LT(done, 30u);
  const auto rows = rows_of(at("trace.json"));
  EXPECT_EQ(rows.at({0, "sequence rank 1"}).count("step"), done + 1);  // the last one is the failed one
  EXPECT_EQ(rows.at({0, "sequence rank 1"}).count("optimizer"), done);
}

TEST_F(Timeline, ABadRequestIsRefusedBeforeAnythingStarts) {
  write_config(tiny(data, {"training.steps=2"}));
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& part) {
    expect_end(run_child("train", joined({"--config", "run.yaml", "--output", "run"}, arguments), folder), 2, {part});
    EXPECT_FALSE(std::filesystem::exists(at("run")));
  };
  refused({"--trace", "."}, "is a folder");
  refused({"--trace", "text.h5/trace.json"}, "text.h5 is not a folder");
  refused({"--trace-steps", "1:2"}, "--trace-steps requires --trace");
  for (const std::string steps : {"0:2", "3:2", "2", "2:", ":2", "1:2x", "a:b", "1-2"}) {
    refused({"--trace", "trace.json", "--trace-steps", steps}, "--trace-steps " + steps);
  }
  expect_end(run_child("train",
                       {"--config", "run.yaml", "--output", "run", "--trace", "run/trace.json", "--trace-steps", "2:2"},
                       folder),
             0);
  EXPECT_EQ(rows_of(at("run/trace.json")).at({0, "sequence rank 0"}).count("step"), 1u);
}

}  // namespace
}  // namespace ringtrain::testing
