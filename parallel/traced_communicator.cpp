#include "parallel/traced_communicator.h"

#include <unordered_map>
#include <utility>

#include "parallel/forwarding_communicator.h"

namespace ringtrain {

namespace {

/// What a communicator transfers and records. One for host memory also sees GPU memory, whose copies are recorded by
/// the code that makes them; one for GPU memory leaves host memory to the communicator below it, which records that.
enum class Recorded { host_memory, device_memory };

class TracedCommunicator final : public ForwardingCommunicator {
 public:
  TracedCommunicator(std::shared_ptr<Communicator> inner, RankTrace& trace, Recorded recorded)
      : ForwardingCommunicator(std::move(inner)), trace_(trace), recorded_(recorded) {}

  Request exchange(const ConstTensorView& send, int to, const TensorView& receive, int from, const CallSite& site,
                   const CallerLine& line) override {
    const ConstTensorView message = to == no_peer ? ConstTensorView(receive) : send;
    const bool on_device = !message.device.is_cpu();
    TraceEntry* entry = nullptr;
    if ((to != no_peer || from != no_peer) && on_device == (recorded_ == Recorded::device_memory)) {
      const std::initializer_list<TraceArgument> arguments{{"layer", site.layer},
                                                           {"hop", site.hop},
                                                           {"to", to},
                                                           {"from", from},
                                                           {"bytes", static_cast<std::int64_t>(message.bytes())}};
      entry = on_device ? trace_.begin_transfer(site.operation, arguments)
                        : trace_.communication.begin(site.operation, nullptr, arguments);
    }
    const Request request = inner().exchange(send, to, receive, from, site, line);
    if (request.id != 0 && (on_device || recorded_ == Recorded::host_memory)) {
      pending_.emplace(request.id, Pending{entry, site});
    }
    return request;
  }

  Request reduce_scatter(const TensorView& x, const CallSite& site) override {
    return collective(x, site, &Communicator::reduce_scatter);
  }
  Request all_gather(const TensorView& x, const CallSite& site) override {
    return collective(x, site, &Communicator::all_gather);
  }

  void wait(Request request, const CallerLine& line) override {
    const auto found = pending_.find(request.id);
    if (found == pending_.end()) return inner().wait(request, line);
    const Pending pending = found->second;
    pending_.erase(found);
    const Span span(&trace_.work, "wait", {{"layer", pending.site.layer}, {"hop", pending.site.hop}},
                    pending.site.operation);
    inner().wait(request, line);
    if (recorded_ == Recorded::device_memory) {
      trace_.end_transfer(pending.entry);
    } else {
      trace_.communication.end(pending.entry);
    }
  }

  void barrier(const CallSite& site) override {
    const Span span(own_row(), "wait", {{"layer", site.layer}, {"hop", site.hop}}, site.operation);
    inner().barrier(site);
  }

  std::unique_ptr<Communicator> split(int color) override {
    const Span span(own_row(), "wait", {}, "split");
    return std::make_unique<TracedCommunicator>(inner().split(color), trace_, recorded_);
  }

 private:
  struct Pending {
    TraceEntry* entry;
    CallSite site;
  };
  Request collective(const TensorView& x, const CallSite& site,
                     Request (Communicator::*begin)(const TensorView&, const CallSite&)) {
    TraceEntry* const entry =
        trace_.begin_transfer(site.operation, {{"layer", site.layer}, {"bytes", static_cast<std::int64_t>(x.bytes())}});
    const Request request = (inner().*begin)(x, site);
    if (request.id != 0) pending_.emplace(request.id, Pending{entry, site});
    return request;
  }
  /// Returns the row for calls without a message; null: the communicator below shows them.
  TraceTrack* own_row() { return recorded_ == Recorded::host_memory ? &trace_.work : nullptr; }

  RankTrace& trace_;
  const Recorded recorded_;
  std::unordered_map<std::uint64_t, Pending> pending_;
};

}  // namespace

std::unique_ptr<Communicator> traced(Communicator& inner, RankTrace& trace) {
  return std::make_unique<TracedCommunicator>(borrowed(inner), trace, Recorded::host_memory);
}

std::unique_ptr<Communicator> traced_on_device(std::shared_ptr<Communicator> inner, RankTrace& trace) {
  return std::make_unique<TracedCommunicator>(std::move(inner), trace, Recorded::device_memory);
}

}  // namespace ringtrain
