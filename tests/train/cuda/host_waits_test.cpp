// The host never waits for the device inside a step, except where the loss and the norm are logged: every call that
// waits for it, or may wait, is counted, in every setting. A step also creates no event or stream, and allocates no
// memory.
#include <fmt/ranges.h>

#include "tests/support/gpu.h"
#include "tests/train/train_fixture.h"
#include "train/engine/rank_state.h"

#if defined(RINGTRAIN_CUDA_EMULATED)

namespace ringtrain::testing {
namespace {

using Counts = std::map<std::string, std::size_t>;
using Settings = std::vector<std::string>;

Counts operator-(Counts now, const Counts& before) {
  for (const auto& [name, count] : before) now[name] -= count;
  std::erase_if(now, [](const auto& entry) { return entry.second == 0; });
  return now;
}

/// What a step must not create: the driver may have to wait for the device before it provides any of these.
Counts made(const Counts& calls) {
  Counts found;
  for (const char* const call :
       {"cudaMalloc", "cudaHostAlloc", "cudaEventCreateWithFlags", "cudaStreamCreateWithFlags",
        "cudaStreamCreateWithPriority", "cudaFree", "cudaFreeHost", "cudaEventDestroy", "cudaStreamDestroy"}) {
    if (const auto at = calls.find(call); at != calls.end()) found.insert(*at);
  }
  return found;
}

class HostWaits : public TextTest {
 protected:
  HostWaits() : TextTest({.validation_documents = 10}) {}
  Config config(Settings more) const {
    return tiny(data,
                joined({"training.device=cuda", "training.dtype=bfloat16", "training.seq_len=13", "data.packing=concat",
                        "training.global_batch_size=1", "training.steps=9", "mesh.backend=threads"},
                       more));
  }
  struct Cost {
    Counts waits, calls;
  };
  Cost cost_of(const Config& of, std::int64_t steps, const std::string& output, bool traced) {
    const Counts waits = cuda_emulator::host_waits(), calls = cuda_emulator::calls();
    TrainOptions options{.config = of, .output = at(output), .stop_after = steps};
    if (traced) options.trace.path = at(output + ".json");
    run_with(options);
    return {cuda_emulator::host_waits() - waits, cuda_emulator::calls() - calls};
  }
  /// Returns the cost of the third step, on all ranks together: the difference between a run of three steps and one of
  /// two.
  Cost cost_of_a_step(const Settings& more, bool traced = false) {
    const std::string name = fmt::format("run {}", ++runs);
    const Cost two = cost_of(config(more), 2, name + " two", traced);
    const Cost three = cost_of(config(more), 3, name + " three", traced);
    return {three.waits - two.waits, three.calls - two.calls};
  }
  int runs = 0;
};

/// Each rank waits once, for all work that the step gave to its stream.
Counts once_a_rank(std::size_t ranks) {
  return {{"cudaStreamSynchronize", ranks}};
}

TEST_F(HostWaits, OnceAStepOnOneRank) {
  const std::string deep = "model.num_hidden_layers=5";  // two layers are offloaded
  for (const Settings& more :
       std::vector<Settings>{{},
                             {"training.dtype=float32", "model.architecture=gpt2", "model.max_position_embeddings=13"},
                             {"training.recompute=none"},
                             {"training.recompute=full"},
                             {"training.deterministic=false"},
                             {deep, "training.offload=activations"},
                             {deep, "training.offload=activations+optimizer"},
                             {"data.packing=documents"},
                             {"training.global_batch_size=3"},
                             {"training.global_batch_size=4", "training.micro_batch_size=2"}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(more, " ")));
    const Cost step = cost_of_a_step(more);
    EXPECT_EQ(step.waits, once_a_rank(1));
    EXPECT_EQ(made(step.calls), Counts{});
  }
}

/// For hundreds of parameters; with several ranks, each has a part of each bucket, so there is a pass per bucket.
TEST_F(HostWaits, TheGradientsNormIsOnePass) {
  const auto passes = [&](const Settings& more, std::int64_t steps) {
    cuda_emulator::start_trace();
    cost_of(config(more), steps, fmt::format("norm {}", ++runs), false);
    const auto ran = cuda_emulator::take_trace();
    return std::ranges::count_if(ran, [](const cuda_emulator::Trace& work) {
      return work.name.find("piece_sums_kernel") != std::string::npos && work.name.find("Square") != std::string::npos;
    });
  };
  EXPECT_EQ(passes({}, 3) - passes({}, 2), 1);
  const Settings two{"mesh.data=2", "training.global_batch_size=2", "model.num_hidden_layers=2"};
  EXPECT_LE(passes(two, 3) - passes(two, 2), 2 * 4);  // two ranks; embedding, two layers, head
}

TEST_F(HostWaits, OnceAStepAndRankInARing) {
  for (const auto& [ranks, more] : std::vector<std::pair<std::size_t, Settings>>{
           {2, {"mesh.sequence=2"}},
           {4, {"mesh.sequence=4", "mesh.layout=contiguous"}},
           {4, {"mesh.sequence=2", "mesh.data=2", "training.global_batch_size=2"}},
           {2, {"mesh.sequence=2", "data.packing=documents", "training.global_batch_size=2"}},
           {2, {"mesh.sequence=2", "model.num_hidden_layers=4", "training.offload=activations+optimizer"}}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(more, " ")));
    const Cost step = cost_of_a_step(more);
    EXPECT_EQ(step.waits, once_a_rank(ranks));
    EXPECT_EQ(made(step.calls), Counts{});
  }
}

TEST_F(HostWaits, ATimelineAddsNone) {
  EXPECT_EQ(cost_of_a_step({}, /*traced=*/true).waits, once_a_rank(1));
  EXPECT_EQ(cost_of_a_step({"mesh.sequence=2", "model.num_hidden_layers=4", "training.offload=activations+optimizer"},
                           /*traced=*/true)
                .waits,
            once_a_rank(2));
}

TEST_F(HostWaits, AnEvaluationAddsOneABlock) {
  const Settings often{"evaluation.interval=1", "evaluation.context_lengths=[8, 16]", "evaluation.target_tokens=4",
                       "evaluation.target_blocks=2"};
  const Cost step = cost_of_a_step(often);
  EXPECT_EQ(step.waits, (Counts{{"cudaStreamSynchronize", 1 + 2 * 2}}));
  EXPECT_EQ(made(step.calls), Counts{});
}

TEST_F(HostWaits, ASaveInTheBackgroundAddsNone) {
  for (const bool offloaded : {false, true}) {
    SCOPED_TRACE(offloaded);
    Settings often{"checkpoint.interval=1"};
    if (offloaded) often.emplace_back("training.offload=activations+optimizer");
    Cost step = cost_of_a_step(often);
    // The writing thread finds the snapshot ready, or waits for it, depending on how the threads are scheduled, in any
    // of the saves.
    for (const char* const own : {"cudaEventQuery: not ready", "cudaEventSynchronize"}) step.waits.erase(own);
    Counts expected = once_a_rank(1);
    // The host copies what is on the host: weights and two moments of 20 parameters.
    if (offloaded) expected["cudaMemcpyAsync: host to host"] = 3 * 20;
    EXPECT_EQ(step.waits, expected);
    EXPECT_EQ(made(step.calls), Counts{});
  }
}

// The writing thread is so late that the device already has the next update: it waits for the snapshot.
TEST_F(HostWaits, ASnapshotIsOfItsStepHoweverLateItsThreadComes) {
  for (const bool offloaded : {false, true}) {
    SCOPED_TRACE(offloaded);
    const auto states_of = [&](const std::string& name, Settings more) {
      // Two steps between saves: a save waits for the previous one, and the first step's update runs in the second.
      more.insert(more.end(), {"checkpoint.interval=2", "checkpoint.keep=9", "training.steps=4"});
      if (offloaded) more.emplace_back("training.offload=activations+optimizer");
      run(config(more), name + (offloaded ? " offloaded" : ""));
      std::vector<std::map<std::string, std::vector<double>>> states;
      for (const std::int64_t step : {2, 4}) {
        states.push_back(state(checkpoint(name + (offloaded ? " offloaded" : ""), step)));
      }
      return states;
    };
    const auto expected = states_of("waiting", {"checkpoint.background=false"});
    EXPECT_NE(expected[0], expected[1]);
    cuda_emulator::set_late_event_waits(std::chrono::milliseconds(1000));
    EXPECT_EQ(states_of("late", {}), expected);
    cuda_emulator::set_late_event_waits(std::chrono::milliseconds(0));
  }
}

// The emulator's streams run nothing before a host waits: so work that runs while a step is issued has been waited for.
TEST_F(HostWaits, TheHostRunsAWholeStepAhead) {
  struct Moment {
    std::int64_t step;
    std::size_t ran, given;
  };
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    const auto micro_batches = std::size_t{4};
    std::vector<std::vector<Moment>> moments(ranks);
    const Config ahead = config({"training.global_batch_size=4", fmt::format("mesh.sequence={}", ranks)});
    const TrainOptions options{.config = ahead, .output = at(fmt::format("ahead {}", ranks)), .stop_after = 2};
    run_with(options, [&](RankState& state, std::int64_t step) {
      state.world->barrier({"test"});  // no rank is ahead of the others, and none waits for its device
      moments[state.rank].push_back({step, cuda_emulator::work_done(), cuda_emulator::work_given()});
      state.world->barrier({"test"});
    });
    for (const std::vector<Moment>& own : moments) {
      ASSERT_EQ(own.size(), 2 * micro_batches);
      for (std::size_t i = 0; i < own.size(); i += micro_batches) {
        const Moment &first = own[i], &last = own[i + micro_batches - 1];
        EXPECT_EQ(last.step, first.step);
        EXPECT_EQ(last.ran, first.ran) << "the device was waited for between micro-batches";
        EXPECT_GT(last.given, first.given + 3 * 100) << "three micro-batches are more than this";
      }
      // The step's end waits for all of its work.
      EXPECT_GE(own[micro_batches].ran, own[micro_batches - 1].given);
    }
  }
}

}  // namespace
}  // namespace ringtrain::testing

#endif
