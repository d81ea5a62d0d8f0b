// A communicator that passes every call on to another one, counts what is sent, and may sleep a random while before
// each exchange and wait: for tests of how much traffic there is, and that timing changes no bit.
#pragma once

#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "parallel/communicator.h"

namespace ringtrain::testing {

struct Traffic {
  int messages = 0;
  std::size_t bytes = 0;
};

class WatchedCommunicator final : public Communicator {
 public:
  /// traffic: counts of this and of everything split from it. jitter_seed 0: no sleeping.
  WatchedCommunicator(Communicator& inner, Traffic& traffic, unsigned jitter_seed = 0)
      : inner_(&inner), traffic_(traffic), seed_(jitter_seed), random_(jitter_seed + 977U * unsigned(inner.rank())) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Request exchange(const TensorView& send, int to, const TensorView& receive, int from, const CallSite& site) override {
    dawdle();
    if (to != no_peer) {
      ++traffic_.messages;
      traffic_.bytes += send.bytes();
    }
    return inner_->exchange(send, to, receive, from, site);
  }
  void set_stream(Stream& stream) override { inner_->set_stream(stream); }
  void begin_group() override { inner_->begin_group(); }
  void end_group() override { inner_->end_group(); }
  void wait(Request request) override {
    dawdle();
    inner_->wait(request);
  }
  void barrier(const CallSite& site) override { inner_->barrier(site); }
  std::unique_ptr<Communicator> split(int colour) override {
    auto inner = inner_->split(colour);
    auto watched = std::make_unique<WatchedCommunicator>(*inner, traffic_, seed_);
    watched->owned_ = std::move(inner);
    return watched;
  }
  void close() override { inner_->close(); }
  void abort(const Error& error) override { inner_->abort(error); }
  void throw_if_aborted() override { inner_->throw_if_aborted(); }

 private:
  void dawdle() {
    if (seed_ != 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 400));
  }
  std::unique_ptr<Communicator> owned_;
  Communicator* inner_;
  Traffic& traffic_;
  const unsigned seed_;
  std::mt19937 random_;
};

}  // namespace ringtrain::testing
