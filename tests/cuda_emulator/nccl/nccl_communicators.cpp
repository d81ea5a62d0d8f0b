// The life cycle of the emulated NCCL's communicators, and the interface for tests.
#include "nccl/nccl_communicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "nccl/nccl_groups.h"
#include "nccl/nccl_remote_ranks.h"

namespace cuda_emulator::nccl {

namespace {

constexpr char magic[] = "emulated";

/// Returns a unique id's number, which other processes also know; 0: the id is invalid.
std::uint64_t number_of(const ncclUniqueId& id) {
  std::uint64_t number = 0;
  if (std::memcmp(id.internal, magic, sizeof(magic)) == 0) {
    std::memcpy(&number, id.internal + sizeof(magic), sizeof(number));
  }
  return number;
}

RankSet& rank_set_of(std::uint64_t number) {
  std::shared_ptr<RankSet>& rank_set = state().rank_sets[number];
  if (!rank_set) rank_set = std::make_shared<RankSet>();
  rank_set->unique_id = number;
  return *rank_set;
}

bool in_progress(const ncclComm& communicator) {
  using Phase = ncclComm::Phase;
  return communicator.phase == Phase::joining || communicator.phase == Phase::posting ||
         communicator.phase == Phase::splitting || communicator.phase == Phase::leaving;
}

/// Whether ranks of one host may share a device.
bool sharing_is_allowed() {
  const char* const asked = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return state().version >= NCCL_VERSION(2, 30, 0) && asked != nullptr && std::string(asked) == "1";
}

/// Returns two of the ranks, all of which have joined, that share a device of one host, or (-1, -1).
std::pair<int, int> sharing(const ncclComm& communicator) {
  if (sharing_is_allowed()) return {-1, -1};
  std::map<int, RankDevice> places;  // by rank
  if (communicator.remote) places = communicator.remote->places();
  for (const auto& [rank, member] : communicator.rank_set->members) places[rank] = rank_device(member->device);
  std::map<RankDevice, int> ranks;
  for (const auto& [rank, place] : places) {
    const auto [at, first] = ranks.emplace(place, rank);
    if (!first) return {at->second, rank};
  }
  return {-1, -1};
}

/// Returns whether all ranks have joined. Searches for those of other processes.
bool all_are_there(ncclComm& communicator) {
  const RankSet& rank_set = *communicator.rank_set;
  const auto missing = [&] {
    return rank_set.size - std::ssize(rank_set.members) - (communicator.remote ? communicator.remote->joined() : 0);
  };
  if (missing() == 0) return true;
  if (!communicator.remote) communicator.remote = std::make_shared<RemoteRanks>(communicator, rank_set.unique_id);
  communicator.remote->seek();
  return missing() == 0;
}

bool go_on_joining(ncclComm& communicator) {
  if (!all_are_there(communicator)) return false;
  if (communicator.remote && communicator.remote->joined() == 0) communicator.remote.reset();
  if (const auto [a, b] = sharing(communicator); a >= 0) {
    break_communicator(communicator, ncclInvalidUsage,
                       fmt::format("Duplicate GPU detected: ranks {} and {} have one device", a, b));
    return false;
  }
  return --communicator.polls <= 0;
}

/// Makes the communicator a rank of this rank set. Returns whether this is possible.
bool enter(ncclComm& communicator, std::uint64_t number, int ranks, int rank) {
  RankSet& rank_set = rank_set_of(number);
  if ((rank_set.size != 0 && rank_set.size != ranks) || rank_set.members.contains(rank)) return false;
  rank_set.size = ranks;
  rank_set.members[rank] = &communicator;
  communicator.rank_set = state().rank_sets.at(number);
  communicator.rank = rank;
  return true;
}

/// Returns the number of the rank set that is a part of this one, which is the same in all processes.
std::uint64_t part_of(const RankSet& rank_set, std::size_t split, int color) {
  std::uint64_t number = rank_set.unique_id;
  for (const std::uint64_t one : {std::uint64_t{split}, static_cast<std::uint64_t>(color)}) {
    number = (number ^ (one + 1)) * 0x9e3779b97f4a7c15;
    number ^= number >> 29;
  }
  return number | 1;
}

/// Returns the arguments of all ranks for their split with this number, by rank; empty: some have not called it yet.
std::map<int, SplitCall> calls_of(const ncclComm& communicator, std::size_t split) {
  std::map<int, SplitCall> calls;
  if (communicator.remote) calls = communicator.remote->splits(split);
  for (const auto& [rank, member] : communicator.rank_set->members) {
    if (member->splits.size() > split) calls[rank] = member->splits[split];
  }
  return std::ssize(calls) == communicator.rank_set->size ? calls : std::map<int, SplitCall>{};
}

/// Once all ranks have called it, this one joins those with its color.
bool go_on_splitting(ncclComm& communicator) {
  ncclComm& part = *communicator.part;
  const std::size_t split = communicator.splits.size() - 1;
  if (!part.rank_set) {
    const auto calls = calls_of(communicator, split);
    if (calls.empty()) return false;
    const SplitCall own = communicator.splits.back();
    std::set<std::pair<int, int>> ranks;  // by key
    for (const auto& [rank, call] : calls) {
      if (call.color == own.color) ranks.emplace(call.key, rank);
    }
    const auto place = std::distance(ranks.begin(), ranks.find({own.key, communicator.rank}));
    enter(part, part_of(*communicator.rank_set, split, own.color), static_cast<int>(ranks.size()),
          static_cast<int>(place));
  }
  if (part.error == ncclSuccess && !go_on_joining(part)) return false;
  *std::exchange(communicator.part_for, nullptr) = &part;
  if (part.error != ncclSuccess) {
    break_communicator(communicator, part.error, part.last_error);
    return false;
  }
  part.phase = ncclComm::Phase::ready;
  communicator.part = nullptr;
  return true;
}

/// The work on streams must end first, and all ranks must leave.
bool go_on_leaving(Runtime& runtime, ncclComm& communicator, Streams::Lock& lock) {
  bool idle = true;
  for (const auto& one : communicator.groups) {
    const auto group = one.lock();
    if (!group || group->done()) continue;
    idle = false;
    runtime.streams.nudge(group->stream, lock);
  }
  const int leaving = communicator.rank_set->leaving + (communicator.remote ? communicator.remote->leaving() : 0);
  return idle && leaving == communicator.rank_set->size && --communicator.polls <= 0;
}

/// Removes the communicator from its rank set; its handle is no longer valid.
void retire(ncclComm& communicator) {
  if (communicator.rank_set) communicator.rank_set->members.erase(communicator.rank);
  communicator.phase = ncclComm::Phase::gone;
  communicator.posting.reset();
  communicator.remote.reset();
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

RankDevice rank_device(int device) {
  const char* const host = std::getenv("NCCL_HOSTID");
  return {physical_device(device), std::hash<std::string>()(host != nullptr ? host : "")};
}

State& state() {
  static auto& instance = *new State;  // outlives all destructors that call it
  return instance;
}

ncclResult_t misuse(const std::string& what) {
  state().misuses.push_back(what);
  static const bool prints = std::getenv("CUDA_EMULATOR_TELL") != nullptr;
  if (prints) std::fprintf(stderr, "CUDA emulator: misuse of NCCL: %s\n", what.c_str());
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
  bool is_first = false;
  {
    const std::lock_guard lock(threads_mutex());
    is_first = with_threads().insert(communicator).second;
  }
  if (is_first) return;
  const std::lock_guard lock(runtime().mutex);
  misuse(fmt::format("{} while another thread is in a call on the same communicator", function));
}

OnlyThread::~OnlyThread() {
  const std::lock_guard lock(threads_mutex());
  with_threads().erase(communicator_);
}

// --- The functions of NCCL.

namespace {

ncclResult_t check_config(const char* function, const ncclConfig_t* config) {
  if (config == nullptr || config->size != sizeof(ncclConfig_t) || config->magic != 0xcafebeef) {
    return misuse(fmt::format("{}: the config did not begin as NCCL_CONFIG_INITIALIZER", function));
  }
  if (config->blocking != 0) return misuse(fmt::format("{}: the emulator has none that block", function));
  if (config->maxCTAs < 1 || config->maxCTAs > 32) {
    return misuse(fmt::format("{}: nothing bounds the multiprocessors that its kernels take (maxCTAs)", function));
  }
  return ncclSuccess;
}

/// Returns a communicator that has not joined yet.
ncclComm& new_communicator() {
  auto made = std::make_unique<ncclComm>();
  made->device = current_device();
  made->polls = state().polls;
  return *state().communicators.emplace_back(std::move(made));
}

}  // namespace

ncclResult_t get_version(int* version) {
  const CallGuard guard(runtime());
  *version = state().version;
  return ncclSuccess;
}

ncclResult_t get_unique_id(ncclUniqueId* id) {
  static std::random_device random;
  const CallGuard guard(runtime());
  if (const ncclResult_t result = injected("ncclGetUniqueId"); result != ncclSuccess) return result;
  const std::uint64_t number = std::uint64_t{random()} << 32 | random() | 1;
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
  if (const ncclResult_t result = check_config("ncclCommInitRankConfig", config); result != ncclSuccess) return result;
  if (number == 0 || ranks < 1 || rank < 0 || rank >= ranks) {
    misuse(fmt::format("ncclCommInitRankConfig: rank {} of {} by {} unique id", rank, ranks, number == 0 ? "no" : "a"));
    return ncclInvalidArgument;
  }
  ncclComm& made = new_communicator();
  if (!enter(made, number, ranks, rank)) {
    made.phase = ncclComm::Phase::gone;
    misuse(fmt::format("ncclCommInitRankConfig: rank {} joins others than {}, or twice", rank, ranks));
    return ncclInvalidArgument;
  }
  *communicator = &made;
  return ncclInProgress;
}

ncclResult_t split(ncclComm_t communicator, int color, int key, ncclComm_t* part, const ncclConfig_t* config) {
  return call("ncclCommSplit", communicator, [&](Runtime&, ncclComm& one, Streams::Lock&) {
    if (in_group()) return misuse("ncclCommSplit within a group");
    if (const ncclResult_t result = check_config("ncclCommSplit", config); result != ncclSuccess) return result;
    if (color < 0) return misuse("ncclCommSplit: a color below 0, which the emulator does not have");
    if (one.error != ncclSuccess) return one.error;
    if (one.phase != ncclComm::Phase::ready) return misuse("ncclCommSplit while a call is in progress");
    const auto under_way = [](const auto& weak) {
      const auto group = weak.lock();
      return group && !group->done();
    };
    if (std::any_of(one.groups.begin(), one.groups.end(), under_way)) {
      return misuse("ncclCommSplit of a communicator that has groups under way");
    }
    one.part = &new_communicator();
    one.part->device = one.device;
    one.part_for = part;
    *part = nullptr;
    one.splits.push_back({color, key});
    if (one.remote) one.remote->send_split(one.splits.back());
    one.phase = ncclComm::Phase::splitting;
    return ncclSuccess;
  });
}

ncclResult_t get_state(ncclComm_t communicator, ncclResult_t* found) {
  return call("ncclCommGetAsyncError", communicator, [&](Runtime& runtime, ncclComm& one, Streams::Lock& lock) {
    using Phase = ncclComm::Phase;
    if (one.error_to_come != ncclSuccess && --one.polls_to_error <= 0) {
      break_communicator(one, std::exchange(one.error_to_come, ncclSuccess), "an error that a test wants");
    }
    if (one.error == ncclSuccess) {
      if ((one.phase == Phase::joining && go_on_joining(one)) ||
          (one.phase == Phase::splitting && go_on_splitting(one)) ||
          (one.phase == Phase::posting && go_on_posting(runtime, one, lock))) {
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
    one.polls = state().polls;
    ++one.rank_set->leaving;
    if (one.remote) one.remote->leave();
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

/// When an aborted communicator frees memory, it waits for the GPU, which does not finish while a group of another
/// communicator blocks it. Records a misuse after a second.
void wait_for_gpu(Runtime& runtime, int device, Streams::Lock& lock) {
  const auto is_alive = [](const std::weak_ptr<Group>& weak) {
    const auto group = weak.lock();
    return group && group->begun && !group->done();
  };
  const auto busy = [&](const auto& one) {
    return one->device == device && one->phase != ncclComm::Phase::gone &&
           std::any_of(one->groups.begin(), one->groups.end(), is_alive);
  };
  const auto deadline = Clock::now() + std::chrono::seconds(1);
  while (std::any_of(state().communicators.begin(), state().communicators.end(), busy)) {
    if (Clock::now() > deadline) {
      misuse("ncclCommAbort while a kernel of another communicator stands on the GPU, which is not aborted meanwhile");
      return;
    }
    runtime.memory.close();
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }
}

ncclResult_t abort(ncclComm_t communicator) {
  return call("ncclCommAbort", communicator, [&](Runtime& runtime, ncclComm& one, Streams::Lock& lock) {
    if (in_group()) return misuse("ncclCommAbort within a group, which puts it off to the group's end");
    const auto is_part = [&](const auto& other) {
      return other->part == &one && other->phase != ncclComm::Phase::gone;
    };
    if (std::any_of(state().communicators.begin(), state().communicators.end(), is_part)) {
      return misuse("ncclCommAbort of the part of a split that failed, before that of the whole");
    }
    if (one.part_for != nullptr) {  // the split is over
      break_communicator(*one.part, ncclInternalError, "the whole was aborted while it was split");
      *std::exchange(one.part_for, nullptr) = one.part;
    }
    for (const auto& weak : one.groups) {
      if (const auto group = weak.lock()) group->aborted = true;
    }
    retire(one);
    runtime.streams.wake();
    wait_for_gpu(runtime, one.device, lock);
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

void set_nccl_version(int version) {
  const std::lock_guard lock(runtime().mutex);
  nccl::state().version = version;
}

void set_nccl_polls(int polls) {
  const std::lock_guard lock(runtime().mutex);
  nccl::state().polls = polls;
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

int nccl_communicators_made() {
  const std::lock_guard lock(runtime().mutex);
  return static_cast<int>(nccl::state().communicators.size());
}

int nccl_communicators() {
  const std::lock_guard lock(runtime().mutex);
  const auto& all = nccl::state().communicators;
  return static_cast<int>(
      std::count_if(all.begin(), all.end(), [](const auto& one) { return one->phase != ncclComm::Phase::gone; }));
}

}  // namespace cuda_emulator
