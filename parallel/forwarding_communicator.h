// A communicator that passes every call on to another one: the base of those that add something to some of the calls
// (faults on purpose, the timeline). Bits, order and errors are those of the communicator within. Each says itself how
// what is split off it is made.
#pragma once

#include <memory>
#include <utility>

#include "parallel/communicator.h"

namespace ringtrain {

class ForwardingCommunicator : public Communicator {
 public:
  /// inner must outlive it.
  explicit ForwardingCommunicator(Communicator& inner) : inner_(inner) {}
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> inner) : owned_(std::move(inner)), inner_(*owned_) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Request exchange(const ConstTensorView& send, int to, const TensorView& receive, int from, const CallSite& site,
                   const CallerLine& line) override {
    return inner_.exchange(send, to, receive, from, site, line);
  }
  void set_stream(Stream& stream) override { inner_.set_stream(stream); }
  void begin_group() override { inner_.begin_group(); }
  void end_group() override { inner_.end_group(); }
  int multiprocessors() const override { return inner_.multiprocessors(); }
  bool reduces_gpu_memory() const override { return inner_.reduces_gpu_memory(); }
  Request reduce_scatter(const TensorView& x, const CallSite& site) override { return inner_.reduce_scatter(x, site); }
  Request all_gather(const TensorView& x, const CallSite& site) override { return inner_.all_gather(x, site); }
  void set_lockstep(bool on) override { inner_.set_lockstep(on); }
  void wait(Request request, const CallerLine& line) override { inner_.wait(request, line); }
  void barrier(const CallSite& site) override { inner_.barrier(site); }
  void close() override { inner_.close(); }
  void abort(const Error& error) override { inner_.abort(error); }
  void throw_if_aborted() override { inner_.throw_if_aborted(); }

 protected:
  Communicator& inner() { return inner_; }

 private:
  const std::unique_ptr<Communicator> owned_;  // null: it belongs to somebody else, as a world to its launcher
  Communicator& inner_;
};

}  // namespace ringtrain
