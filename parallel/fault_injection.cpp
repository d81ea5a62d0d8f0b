#include "parallel/fault_injection.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "framework/text/text_reader.h"
#include "parallel/forwarding_communicator.h"

namespace ringtrain {

namespace {

/// The fault of one rank: shared by all communicators split from its world.
struct Fault {
  int rank = 0;
  std::string operation;
  int count = 1;
  std::string action;
  int seen = 0;
  bool slow = false;
};

Fault read_fault(const std::string& text) {
  constexpr std::array<std::string_view, 5> actions{"kill", "stop", "slow", "diverge", "throw"};
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ':');) parts.push_back(part);
  Fault fault;
  const auto number = [](std::string_view part, int& value) { return take_number(part, value) && part.empty(); };
  if (parts.size() != 4 || !number(parts[0], fault.rank) || !number(parts[2], fault.count) ||
      std::ranges::find(actions, parts[3]) == actions.end()) {
    fail(ExitCode::usage,
         "RINGTRAIN_FAULT={}: must be RANK:OPERATION:COUNT:ACTION, action kill, stop, slow, diverge "
         "or throw",
         text);
  }
  fault.operation = parts[1];
  fault.action = parts[3];
  return fault;
}

class FaultyCommunicator final : public ForwardingCommunicator {
 public:
  FaultyCommunicator(Communicator& inner, std::shared_ptr<Fault> fault)
      : ForwardingCommunicator(inner), fault_(std::move(fault)) {}
  FaultyCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<Fault> fault)
      : ForwardingCommunicator(std::move(inner)), fault_(std::move(fault)) {}

  Request exchange(const ConstTensorView& send, int to, const TensorView& receive, int from, const CallSite& site,
                   const CallerLine& line) override {
    return inner().exchange(send, to, receive, from, passed(site), line);
  }
  Request reduce_scatter(const TensorView& x, const CallSite& site) override {
    return inner().reduce_scatter(x, passed(site));
  }
  Request all_gather(const TensorView& x, const CallSite& site) override { return inner().all_gather(x, passed(site)); }
  std::unique_ptr<Communicator> split(int colour) override {
    return std::make_unique<FaultyCommunicator>(inner().split(colour), fault_);
  }

 private:
  /// The fault, if this is its call. Returns what the call is told to be for.
  CallSite passed(const CallSite& site) {
    CallSite own = site;
    if (site.operation == fault_->operation && ++fault_->seen == fault_->count) {
      act();
      if (fault_->action == "diverge") own.operation = "something else";
    }
    if (fault_->slow) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return own;
  }
  void act() {
    const std::string& action = fault_->action;
    std::fprintf(stderr, "fault: rank %d, %s, at %lld\n", fault_->rank, action.c_str(),
                 static_cast<long long>(std::chrono::steady_clock::now().time_since_epoch().count()));
    std::fflush(stderr);
    if (action == "kill") ::raise(SIGKILL);
    if (action == "stop") ::raise(SIGSTOP);
    if (action == "throw") fail(ExitCode::numeric, "rank {} throws as RINGTRAIN_FAULT wants it", fault_->rank);
    fault_->slow = action == "slow";
  }

  const std::shared_ptr<Fault> fault_;
};

/// Returns the fault that the environment wants of this rank, or null.
std::shared_ptr<Fault> fault_of_environment(int rank) {
  const char* const text = std::getenv("RINGTRAIN_FAULT");
  if (!text || !*text) return nullptr;
  auto fault = std::make_shared<Fault>(read_fault(text));
  return fault->rank == rank ? fault : nullptr;
}

}  // namespace

std::unique_ptr<Communicator> with_fault_of_environment(Communicator& world) {
  auto fault = fault_of_environment(world.rank());
  return fault ? std::make_unique<FaultyCommunicator>(world, std::move(fault)) : nullptr;
}

std::unique_ptr<Communicator> with_fault_of_environment(std::unique_ptr<Communicator> ranks) {
  auto fault = fault_of_environment(ranks->rank());
  if (!fault) return ranks;
  return std::make_unique<FaultyCommunicator>(std::move(ranks), std::move(fault));
}

}  // namespace ringtrain
