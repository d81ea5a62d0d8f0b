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

/// The fault of one rank, shared by all communicators split from its world.
struct Fault {
  int rank = 0;
  std::string operation;
  int count = 1;
  std::string action;
  int seen = 0;
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
         "RINGTRAIN_FAULT={}: must be RANK:OPERATION:COUNT:ACTION, where ACTION is kill, stop, slow, diverge or throw",
         text);
  }
  fault.operation = parts[1];
  fault.action = parts[3];
  return fault;
}

class FaultyCommunicator final : public ForwardingCommunicator {
 public:
  FaultyCommunicator(std::shared_ptr<Communicator> inner, std::shared_ptr<Fault> fault)
      : ForwardingCommunicator(std::move(inner)), fault_(std::move(fault)) {}

  std::unique_ptr<Communicator> split(int color) override {
    return std::make_unique<FaultyCommunicator>(inner().split(color), fault_);
  }

 private:
  /// Injects the fault if this is its call.
  CallSite passed(const CallSite& site) override {
    const std::string& action = fault_->action;
    const bool now = site.operation == fault_->operation && ++fault_->seen == fault_->count;
    if (now) {
      std::fprintf(stderr, "fault: rank %d, %s, at %lld\n", fault_->rank, action.c_str(),
                   static_cast<long long>(std::chrono::steady_clock::now().time_since_epoch().count()));
      std::fflush(stderr);
      if (action == "kill") ::raise(SIGKILL);
      if (action == "stop") ::raise(SIGSTOP);
      if (action == "throw") fail(ExitCode::numeric, "rank {} throws, as RINGTRAIN_FAULT says", fault_->rank);
    }
    const bool slow = action == "slow" && fault_->seen >= fault_->count;
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return {now && action == "diverge" ? "something else" : site.operation, site.layer, site.hop};
  }

  const std::shared_ptr<Fault> fault_;
};

}  // namespace

std::shared_ptr<Communicator> with_fault_of_environment(std::shared_ptr<Communicator> ranks) {
  const char* const text = std::getenv("RINGTRAIN_FAULT");
  if (!text || !*text) return ranks;
  auto fault = std::make_shared<Fault>(read_fault(text));
  if (fault->rank != ranks->rank()) return ranks;
  return std::make_shared<FaultyCommunicator>(std::move(ranks), std::move(fault));
}

}  // namespace ringtrain
