// The recording communicator: messages pass through it unchanged, and appear on the timeline.
#include "parallel/traced_communicator.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "framework/profile/trace.h"
#include "parallel/collectives.h"
#include "parallel/launch/launch.h"
#include "tests/support/error_of.h"

namespace ringtrain {
namespace {

std::map<std::string, int> counted(const TraceTrack& track) {
  std::map<std::string, int> count;
  for (std::size_t i = 0; i < track.size(); ++i) {
    ++count[track[i].detail ? std::string(track[i].name) + " " + track[i].detail : track[i].name];
    EXPECT_LE(track[i].begin, track[i].end) << track[i].name;
  }
  return count;
}

TEST(TracedCommunicator, RecordsExchangesFromPostToEndAndWaits) {
  Trace trace(1, 3);
  launch_threads({.ranks = 3, .timeout_seconds = 30}, [&](Communicator& world) {
    const int rank = world.rank(), right = (rank + 1) % 3, left = (rank + 2) % 3;
    const auto recorded = traced(world, trace.rank(rank));
    const auto ring = recorded->split(0);
    EXPECT_EQ(ring->size(), 3);
    EXPECT_EQ(ring->rank(), rank);
    double sent = rank, received = -1;
    ring->wait(ring->exchange({}, no_peer, {}, no_peer, {}));  // nothing: no span
    ring->wait(ring->exchange(host_view(&sent, {1}), right, host_view(&received, {1}), left,
                              {.operation = "neighbor", .layer = 4, .hop = 1}));
    EXPECT_EQ(received, left);
    ring->barrier({"all here"});
    double sum = 1;
    all_reduce_sum(*recorded, {&sum, 1}, {"sum of ones"});
    EXPECT_EQ(sum, 3);
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(counted(trace.rank(rank).communication),
              (std::map<std::string, int>{{"neighbor", 1}, {"sum of ones", 2}}));
    EXPECT_EQ(counted(trace.rank(rank).work),
              (std::map<std::string, int>{
                  {"wait split", 1}, {"wait neighbor", 1}, {"wait all here", 1}, {"wait sum of ones", 2}}));
    const TraceTrack::Entry& exchange = trace.rank(rank).communication[0];
    const std::map<std::string, std::int64_t> expected{
        {"layer", 4}, {"hop", 1}, {"to", (rank + 1) % 3}, {"from", (rank + 2) % 3}, {"bytes", 8}};
    std::map<std::string, std::int64_t> found;
    for (const TraceArgument& argument : exchange.arguments) found[argument.name] = argument.value;
    EXPECT_EQ(found, expected);
    const TraceTrack::Entry& wait = trace.rank(rank).work[1];
    EXPECT_LE(exchange.begin, wait.begin);
    EXPECT_LE(wait.begin, exchange.end);  // it is recorded within the wait
    EXPECT_LE(exchange.end, wait.end);
  }
}

TEST(TracedCommunicator, PassesErrorsOn) {
  Trace trace(1, 2);
  testing::expect_error(ExitCode::numeric, "rank 0 has had enough", [&] {
    launch_threads({.ranks = 2, .timeout_seconds = 30}, [&](Communicator& world) {
      const auto recorded = traced(world, trace.rank(world.rank()));
      if (recorded->rank() == 0) {
        recorded->abort(Error(ExitCode::numeric, "rank 0 has had enough"));
      } else {
        double x = 0;
        recorded->wait(recorded->exchange({}, no_peer, host_view(&x, {1}), 0, {"never sent"}));
      }
    });
  });
}

}  // namespace
}  // namespace ringtrain
