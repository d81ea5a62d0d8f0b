// A communicator that forwards every call to another one, counts sent data, and may sleep for a random time before each
// exchange and wait: to test the amount of traffic, and that timing changes no bit.
#pragma once

#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "parallel/forwarding_communicator.h"

namespace ringtrain::testing {

struct Traffic {
  int messages = 0;
  std::size_t bytes = 0;
};

class WatchedCommunicator final : public ForwardingCommunicator {
 public:
  /// traffic: counts for this and all communicators split from it. jitter_seed 0: no sleeping.
  WatchedCommunicator(std::shared_ptr<Communicator> inner, Traffic& traffic, unsigned jitter_seed = 0)
      : ForwardingCommunicator(std::move(inner)), traffic_(traffic), seed_(jitter_seed), random_(seed_of_rank()) {}

  Request exchange(const ConstTensorView& send, int to, const TensorView& receive, int from, const CallSite& site,
                   const CallerLine& line) override {
    dawdle();
    if (to != no_peer) {
      ++traffic_.messages;
      traffic_.bytes += send.bytes();
    }
    return inner().exchange(send, to, receive, from, site, line);
  }
  void wait(Request request, const CallerLine& line) override {
    dawdle();
    inner().wait(request, line);
  }
  std::unique_ptr<Communicator> split(int color) override {
    return std::make_unique<WatchedCommunicator>(inner().split(color), traffic_, seed_);
  }

 private:
  void dawdle() {
    if (seed_ != 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 400));
  }
  unsigned seed_of_rank() const { return seed_ + 977U * static_cast<unsigned>(rank()); }

  Traffic& traffic_;
  const unsigned seed_;
  std::mt19937 random_;
};

}  // namespace ringtrain::testing
