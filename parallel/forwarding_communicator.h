// A communicator that forwards every call to another one: the base class of those that add something to some calls
// (injected faults, the timeline). Bits, order, and errors are those of the inner communicator. Each derived class
// defines how its splits are made.
#pragma once

#include <memory>
#include <utility>

#include "parallel/communicator.h"

namespace ringtrain {

/// Returns a shared pointer to a communicator with another owner, such as a launcher's world, which must outlive its
/// use.
inline std::shared_ptr<Communicator> borrowed(Communicator& ranks) {
  return {std::shared_ptr<Communicator>(), &ranks};
}

class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Request exchange(const ConstTensorView& send, int to, const TensorView& receive, int from, const CallSite& site,
                   const CallerLine& line) override {
    return inner_->exchange(send, to, receive, from, passed(site), line);
  }
  void set_stream(Stream& stream) override { inner_->set_stream(stream); }
  void begin_group() override { inner_->begin_group(); }
  void end_group() override { inner_->end_group(); }
  int multiprocessors() const override { return inner_->multiprocessors(); }
  bool reduces_gpu_memory() const override { return inner_->reduces_gpu_memory(); }
  Request reduce_scatter(const TensorView& x, const CallSite& site) override {
    return inner_->reduce_scatter(x, passed(site));
  }
  Request all_gather(const TensorView& x, const CallSite& site) override { return inner_->all_gather(x, passed(site)); }
  void set_lockstep(bool on) override { inner_->set_lockstep(on); }
  void wait(Request request, const CallerLine& line) override { inner_->wait(request, line); }
  void barrier(const CallSite& site) override { inner_->barrier(site); }
  void close() override { inner_->close(); }
  void abort(const Error& error) override { inner_->abort(error); }
  void throw_if_aborted() override { inner_->throw_if_aborted(); }

 protected:
  Communicator& inner() { return *inner_; }
  /// Returns the call site that the inner communicator gets for a call with data.
  virtual CallSite passed(const CallSite& site) { return site; }

 private:
  const std::shared_ptr<Communicator> inner_;
};

}  // namespace ringtrain
