#include "tests/parallel/mpi/scenarios.h"

#include <unistd.h>

#include <chrono>
#include <thread>

#include "parallel/shared_error.h"
#include "tests/support/random_tensor.h"

namespace ringtrain::testing {

namespace {

constexpr CallSite test_site{.operation = "test message", .layer = 3, .hop = 2};

/// The others compute, until long after one has waited too long.
void compute() {
  std::this_thread::sleep_for(std::chrono::seconds(3));
}

void receive_that_nobody_sends(Communicator& world) {
  const auto others = world.split(world.rank() == 2 ? 0 : 1);
  std::vector<double> buffer(5);
  if (world.rank() == 2) world.wait(world.exchange({}, no_peer, view_of(buffer), 1, test_site));
  others->barrier({"the others"});
  compute();
}

void send_that_nobody_receives(Communicator& world) {
  const std::vector<double> buffer(1 << 20);  // too large to be sent without the receiver
  const auto odd = world.split(world.rank() % 2);
  if (world.rank() == 3) odd->wait(odd->exchange(view_of(buffer), 0, {}, no_peer, {.operation = "odd"}));
  compute();
}

void barrier_without_two(Communicator& world) {
  if (world.rank() % 2 == 0) {
    world.barrier(test_site);
  } else {
    std::this_thread::sleep_for(std::chrono::seconds(100));  // a slow rank
  }
}

void different_sizes(Communicator& world) {
  const std::vector<double> sent(3);
  std::vector<double> received(4);
  if (world.rank() == 0) world.wait(world.exchange(view_of(sent), 1, {}, no_peer, {.operation = "values", .hop = 1}));
  if (world.rank() == 1) {
    world.wait(world.exchange({}, no_peer, view_of(received), 0, {.operation = "values", .hop = 1}));
  }
  world.barrier(test_site);
}

void larger_than_the_buffer(Communicator& world) {
  const std::vector<double> sent(1 << 20);
  std::vector<double> received(4);
  if (world.rank() == 0) world.wait(world.exchange(view_of(sent), 1, {}, no_peer, test_site));
  if (world.rank() == 1) world.wait(world.exchange({}, no_peer, view_of(received), 0, test_site));
  world.barrier(test_site);
}

void different_operations(Communicator& world) {
  std::vector<double> sent(3), received(3);
  const int other = 1 - world.rank();
  if (world.rank() < 2) {
    const CallSite of_rank{.operation = world.rank() == 0 ? "forward" : "backward", .layer = world.rank()};
    world.wait(world.exchange(view_of(sent), other, view_of(received), other, of_rank));
  }
  world.barrier(test_site);
}

void abort_from_another_thread(Communicator& world) {
  const auto pair = world.split(world.rank() / 2);
  if (world.rank() == 3) {
    std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // most wait by then; all end in any case
      pair->abort(Error(ExitCode::numeric, "the first error"));
      pair->abort(Error(ExitCode::data, "a second one"));
    }).join();
  }
  std::vector<double> buffer(8);
  if (world.rank() == 0 && caught([&] { pair->barrier(test_site); })) fail(ExitCode::data, "a second one");
  if (world.rank() == 1) world.split(0);
  world.wait(world.exchange({}, no_peer, view_of(buffer), 0, test_site));
}

/// Rank 0 frees buffers of messages in flight while it unwinds; the others continue to post theirs.
void unwinding_with_messages_under_way(Communicator& world) {
  const std::size_t size = 1 << 22;
  if (world.rank() == 0) {
    const auto sent = std::make_unique<std::vector<std::uint8_t>>(size, std::uint8_t{42});
    std::vector<std::vector<std::uint8_t>> received(6, std::vector<std::uint8_t>(size));
    const auto own = world.split(0);
    for (std::size_t i = 0; i < received.size(); ++i) {
      const int peer = 1 + static_cast<int>(i % 3);
      own->exchange(view_of(*sent), peer, view_of(received[i]), peer, test_site);
    }
    fail(ExitCode::data, "rank 0 has bad data");
  }
  const auto own = world.split(0);
  std::vector<std::vector<std::uint8_t>> received(2, std::vector<std::uint8_t>(size));
  const std::vector<std::uint8_t> sent(size, 7);
  std::vector<Request> requests;
  for (auto& buffer : received) requests.push_back(own->exchange(view_of(sent), 0, view_of(buffer), 0, test_site));
  for (const Request request : requests) own->wait(request);
  world.barrier(test_site);
}

void one_leaves_without_a_word(Communicator& world) {
  if (world.rank() == 1) ::_exit(0);
  world.barrier(test_site);
}

void one_computes_while_another_fails(Communicator& world) {
  if (world.rank() == 0) fail(ExitCode::numeric, "rank 0 sees NaN");
  std::this_thread::sleep_for(std::chrono::seconds(100));  // it computes
}

void one_comes_to_the_end_alone(Communicator& world) {
  if (world.rank() != 0) world.barrier(test_site);
}

}  // namespace

const Scenarios& host_scenarios() {
  static const Scenarios all{{"receive", receive_that_nobody_sends}, {"send", send_that_nobody_receives},
                             {"barrier", barrier_without_two},       {"sizes", different_sizes},
                             {"larger", larger_than_the_buffer},     {"operations", different_operations},
                             {"abort", abort_from_another_thread},   {"unwinding", unwinding_with_messages_under_way},
                             {"leaves", one_leaves_without_a_word},  {"computes", one_computes_while_another_fails},
                             {"end", one_comes_to_the_end_alone}};
  return all;
}

}  // namespace ringtrain::testing
