#include "parallel/clock_offset.h"

namespace ringtrain {

namespace {

constexpr CallSite clock_site{"reading the clocks of all ranks"};
/// On a busy machine, round trips continue until one was fast, or for so long.
constexpr int least_round_trips = 32;
constexpr std::int64_t fast = 100'000, longest = 500'000'000;  // nanoseconds

void send(Communicator& world, std::int64_t value, int to) {
  world.wait(world.exchange(host_view(&value, {1}), to, {}, no_peer, clock_site));
}

std::int64_t receive(Communicator& world, int from) {
  std::int64_t value = 0;
  world.wait(world.exchange({}, no_peer, host_view(&value, {1}), from, clock_site));
  return value;
}

}  // namespace

ClockPair read_clocks(Communicator& world, const std::function<std::int64_t()>& now) {
  if (world.rank() == 0) {
    for (int rank = 1; rank < world.size(); ++rank) {
      for (bool asks_again = true; asks_again;) {
        asks_again = receive(world, rank) != 0;
        send(world, now(), rank);
      }
    }
    const std::int64_t moment = now();
    return {moment, moment, 0};
  }
  ClockPair best{.error = INT64_MAX};
  const std::int64_t begin = now();
  std::int64_t asked = begin;
  for (int i = 1; i <= least_round_trips || (best.error > fast && asked - begin < longest); ++i) {
    asked = now();
    send(world, 1, 0);
    const std::int64_t answer = receive(world, 0), answered = now();
    // Rank 0 read its clock between the two readings; rounding to whole numbers can lose half a nanosecond.
    const std::int64_t error = (answered - asked) / 2 + 1;
    if (error < best.error) best = {asked + (answered - asked) / 2, answer, error};
  }
  send(world, 0, 0);
  receive(world, 0);
  return best;
}

}  // namespace ringtrain
