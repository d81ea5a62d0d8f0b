// How the emulated NCCL's communicators come and go, and what tests say to it.
#include "nccl_cliques.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "nccl_groups.h"

namespace cuda_emulator::nccl {

namespace {

constexpr char magic[] = "emulated";

/// A unique id's number; 0: none that this process gave.
std::uint64_t number_of(const ncclUniqueId& id) {
  std::uint64_t number = 0;
  if (std::memcmp(id.internal, magic, sizeof(magic)) == 0) {
    std::memcpy(&number, id.internal + sizeof(magic), sizeof(number));
  }
  return state().cliques.contains(number) ? number : 0;
}

bool in_progress(const ncclComm& communicator) {
  using Phase = ncclComm::Phase;
  return communicator.phase == Phase::joining || communicator.phase == Phase::posting ||
         communicator.phase == Phase::leaving;
}

/// Return two ranks of a full clique that share a device, or (-1, -1).
std::pair<int, int> sharing(const Clique& clique) {
  std::map<int, int> ranks;  // by device
  for (const auto& [rank, member] : clique.members) {
    const auto [at, first] = ranks.emplace(member->device, rank);
    if (!first) return {at->second, rank};
  }
  return {-1, -1};
}

bool go_on_joining(ncclComm& communicator) {
  if (std::ssize(communicator.clique->members) < communicator.clique->size) return false;
  if (const auto [a, b] = sharing(*communicator.clique); a >= 0) {
    break_communicator(communicator, ncclInvalidUsage,
                       fmt::format("Duplicate GPU detected: ranks {} and {} have one device", a, b));
    return false;
  }
  return --communicator.looks <= 0;
}

/// What is on streams is to end first, and all ranks are to leave.
bool go_on_leaving(Runtime& runtime, ncclComm& communicator, Streams::Lock& lock) {
  bool idle = true;
  for (const auto& one : communicator.groups) {
    const auto group = one.lock();
    if (!group || group->done()) continue;
    idle = false;
    runtime.streams.nudge(group->stream, lock);
  }
  return idle && communicator.clique->leaving == communicator.clique->size && --communicator.looks <= 0;
}

/// Takes the communicator out of its clique; its handle is no longer good for anything.
void retire(ncclComm& communicator) {
  communicator.clique->members.erase(communicator.rank);
  communicator.phase = ncclComm::Phase::gone;
  communicator.posting.reset();
}

std::mutex& threads_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::set<ncclComm_t>& with_threads() {
  static std::set<ncclComm_t> all;
  return all;
}

}  // namespace

State& state() {
  static auto& instance = *new State;  // outlives whatever destructors call it
  return instance;
}

ncclResult_t misuse(const std::string& what) {
  state().misuses.push_back(what);
  state().last_error = what;
  return ncclInvalidUsage;
}

ncclResult_t break_communicator(ncclComm& communicator, ncclResult_t error, const std::string& why) {
  communicator.error = error;
  communicator.last_error = why;
  state().last_error = why;
  return error;
}

ncclResult_t injected(const char* function) {
  for (auto failure = state().failures.begin(); failure != state().failures.end(); ++failure) {
    if (failure->function != function || --failure->calls > 0) continue;
    const ncclResult_t result = failure->result;
    state().failures.erase(failure);
    state().last_error = fmt::format("{} fails as a test wants it", function);
    return result;
  }
  return ncclSuccess;
}

bool usable(const char* function, ncclComm_t communicator) {
  const auto known = [&](const auto& one) { return one.get() == communicator; };
  if (std::any_of(state().communicators.begin(), state().communicators.end(), known) &&
      communicator->phase != ncclComm::Phase::gone) {
    return true;
  }
  misuse(fmt::format("{} of a communicator that {}", function,
                     communicator == nullptr ? "is null" : "was destroyed or aborted"));
  return false;
}

OnlyThread::OnlyThread(const char* function, ncclComm_t communicator) : communicator_(communicator) {
  bool alone = false;
  {
    const std::lock_guard lock(threads_mutex());
    alone = with_threads().insert(communicator).second;
  }
  if (alone) return;
  const std::lock_guard lock(runtime().mutex);
  misuse(fmt::format("{} while another thread is in a call on the same communicator", function));
}

OnlyThread::~OnlyThread() {
  const std::lock_guard lock(threads_mutex());
  with_threads().erase(communicator_);
}

// --- The functions of NCCL.

ncclResult_t get_unique_id(ncclUniqueId* id) {
  static std::uint64_t last = 0;
  const CallGuard guard(runtime());
  if (const ncclResult_t result = injected("ncclGetUniqueId"); result != ncclSuccess) return result;
  const std::uint64_t number = ++last;
  state().cliques[number] = std::make_shared<Clique>();
  *id = {};
  std::memcpy(id->internal, magic, sizeof(magic));
  std::memcpy(id->internal + sizeof(magic), &number, sizeof(number));
  return ncclSuccess;
}

ncclResult_t join(ncclComm_t* communicator, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  const CallGuard guard(runtime());
  if (const ncclResult_t result = injected("ncclCommInitRankConfig"); result != ncclSuccess) return result;
  const std::uint64_t number = number_of(id);
  if (in_group()) return misuse("ncclCommInitRankConfig within a group");
  if (config == nullptr || config->size != sizeof(ncclConfig_t) || config->magic != 0xcafebeef) {
    return misuse("ncclCommInitRankConfig: the config did not begin as NCCL_CONFIG_INITIALIZER");
  }
  if (config->blocking != 0) return misuse("ncclCommInitRankConfig: the emulator has no communicators that block");
  if (number == 0 || ranks < 1 || rank < 0 || rank >= ranks) {
    misuse(fmt::format("ncclCommInitRankConfig: rank {} of {} by {} unique id", rank, ranks, number == 0 ? "no" : "a"));
    return ncclInvalidArgument;
  }
  Clique& clique = *state().cliques.at(number);
  if ((clique.size != 0 && clique.size != ranks) || clique.members.contains(rank)) {
    misuse(fmt::format("ncclCommInitRankConfig: rank {} of {} joins {} others of {}, or twice", rank, ranks,
                       clique.members.size(), clique.size));
    return ncclInvalidArgument;
  }
  clique.size = ranks;
  auto made = std::make_unique<ncclComm>();
  made->clique = state().cliques.at(number);
  made->rank = rank;
  made->device = current_device();
  made->looks = state().looks;
  clique.members[rank] = made.get();
  *communicator = made.get();
  state().communicators.push_back(std::move(made));
  return ncclInProgress;
}

ncclResult_t get_state(ncclComm_t communicator, ncclResult_t* found) {
  return call("ncclCommGetAsyncError", communicator, [&](Runtime& runtime, ncclComm& one, Streams::Lock& lock) {
    using Phase = ncclComm::Phase;
    if (one.error_to_come != ncclSuccess && --one.looks_to_error <= 0) {
      break_communicator(one, std::exchange(one.error_to_come, ncclSuccess), "an error that a test wants");
    }
    if (one.error == ncclSuccess) {
      if (one.phase == Phase::joining && go_on_joining(one)) {
        one.phase = Phase::ready;
      } else if (one.phase == Phase::posting && go_on_posting(runtime, one, lock)) {
        one.phase = Phase::ready;
      } else if (one.phase == Phase::leaving && go_on_leaving(runtime, one, lock)) {
        one.phase = Phase::left;
      }
    }
    *found = one.error != ncclSuccess ? one.error : in_progress(one) ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
  });
}

ncclResult_t finalize(ncclComm_t communicator) {
  return call("ncclCommFinalize", communicator, [&](Runtime&, ncclComm& one, Streams::Lock&) {
    if (in_group()) return misuse("ncclCommFinalize within a group");
    if (one.error != ncclSuccess) return one.error;
    if (one.phase != ncclComm::Phase::ready) return misuse("ncclCommFinalize while a call is in progress, or twice");
    one.phase = ncclComm::Phase::leaving;
    one.looks = state().looks;
    ++one.clique->leaving;
    return ncclInProgress;
  });
}

ncclResult_t destroy(ncclComm_t communicator) {
  return call("ncclCommDestroy", communicator, [&](Runtime&, ncclComm& one, Streams::Lock&) {
    if (in_group()) return misuse("ncclCommDestroy within a group");
    if (one.phase != ncclComm::Phase::left) return misuse("ncclCommDestroy before ncclCommFinalize came to its end");
    retire(one);
    return ncclSuccess;
  });
}

ncclResult_t abort(ncclComm_t communicator) {
  return call("ncclCommAbort", communicator, [&](Runtime& runtime, ncclComm& one, Streams::Lock&) {
    if (in_group()) return misuse("ncclCommAbort within a group, which puts it off to the group's end");
    for (const auto& weak : one.groups) {
      if (const auto group = weak.lock()) group->aborted = true;
    }
    retire(one);
    runtime.streams.wake();
    return ncclSuccess;
  });
}

const char* last_error() {
  static thread_local std::string text;
  const std::lock_guard lock(runtime().mutex);
  text = state().last_error;
  return text.c_str();
}

void forget_all() {
  state() = State{};
}

}  // namespace cuda_emulator::nccl

// --- cuda_emulator_nccl.h.

namespace cuda_emulator {

void set_nccl_looks(int looks) {
  const std::lock_guard lock(runtime().mutex);
  nccl::state().looks = looks;
}

void fail_nccl_call(const std::string& function, int nth, ncclResult_t result) {
  const std::lock_guard lock(runtime().mutex);
  nccl::state().failures.push_back({function, nth, result});
}

void hang_nccl_group(int device, int nth) {
  const std::lock_guard lock(runtime().mutex);
  nccl::state().faults.push_back({device, nth, ncclSuccess});
}

void break_nccl_group(int device, int nth, ncclResult_t error) {
  const std::lock_guard lock(runtime().mutex);
  nccl::state().faults.push_back({device, nth, error});
}

std::vector<std::string> nccl_misuses() {
  const std::lock_guard lock(runtime().mutex);
  return nccl::state().misuses;
}

int nccl_communicators() {
  const std::lock_guard lock(runtime().mutex);
  const auto& all = nccl::state().communicators;
  return static_cast<int>(
      std::count_if(all.begin(), all.end(), [](const auto& one) { return one->phase != ncclComm::Phase::gone; }));
}

}  // namespace cuda_emulator
