#include "parallel/traced_communicator.h"

#include <unordered_map>
#include <utility>

namespace ringtrain {

namespace {

class TracedCommunicator final : public Communicator {
 public:
  TracedCommunicator(Communicator& inner, RankTrace& trace, std::unique_ptr<Communicator> owned)
      : owned_(std::move(owned)), inner_(inner), trace_(trace) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void abort(const Error& error) override { inner_.abort(error); }
  void throw_if_aborted() override { inner_.throw_if_aborted(); }
  void order_with(Stream& stream) override { inner_.order_with(stream); }
  void begin_group() override { inner_.begin_group(); }
  void end_group() override { inner_.end_group(); }

  Ticket exchange(const TensorView& send, int to, const TensorView& receive, int from, const CallSite& site) override {
    TraceTrack::Entry* entry =
        to == no_peer && from == no_peer
            ? nullptr
            : trace_.communication.begin(
                  site.operation, nullptr,
                  {{"layer", site.layer},
                   {"hop", site.hop},
                   {"to", to},
                   {"from", from},
                   {"bytes", static_cast<std::int64_t>(to == no_peer ? receive.bytes() : send.bytes())}});
    const Ticket ticket = inner_.exchange(send, to, receive, from, site);
    if (ticket.id != 0) pending_.emplace(ticket.id, Pending{entry, site});
    return ticket;
  }

  void wait(Ticket ticket) override {
    const auto found = pending_.find(ticket.id);
    if (found == pending_.end()) return inner_.wait(ticket);
    const Pending pending = found->second;
    pending_.erase(found);
    const Span span(&trace_.work, "wait", {{"layer", pending.site.layer}, {"hop", pending.site.hop}},
                    pending.site.operation);
    inner_.wait(ticket);
    trace_.communication.end(pending.entry);
  }

  void barrier(const CallSite& site) override {
    const Span span(&trace_.work, "wait", {{"layer", site.layer}, {"hop", site.hop}}, site.operation);
    inner_.barrier(site);
  }

  std::unique_ptr<Communicator> split(int colour) override {
    const Span span(&trace_.work, "wait", {}, "split");
    auto inner = inner_.split(colour);
    Communicator& reference = *inner;
    return std::make_unique<TracedCommunicator>(reference, trace_, std::move(inner));
  }

 private:
  struct Pending {
    TraceTrack::Entry* entry;
    CallSite site;
  };
  const std::unique_ptr<Communicator> owned_;  // null: a world, which belongs to its launcher
  Communicator& inner_;
  RankTrace& trace_;
  std::unordered_map<std::uint64_t, Pending> pending_;
};

}  // namespace

std::unique_ptr<Communicator> traced(Communicator& inner, RankTrace& trace) {
  return std::make_unique<TracedCommunicator>(inner, trace, nullptr);
}

}  // namespace ringtrain
