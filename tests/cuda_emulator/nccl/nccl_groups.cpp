// Posts groups of the emulated NCCL, and moves their messages.
#include "nccl/nccl_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "device/device_memory.h"
#include "nccl/nccl_remote_ranks.h"

namespace cuda_emulator::nccl {

namespace {

/// What the calling thread has posted since ncclGroupStart.
struct OpenGroup {
  int depth = 0;
  ncclResult_t error = ncclSuccess;  // the first one of its calls
  std::shared_ptr<Group> group;

  ~OpenGroup() {
    if (depth == 0) return;
    const std::lock_guard lock(runtime().mutex);
    misuse("a thread ended with a group open");
  }
};
OpenGroup& open_group() {
  static thread_local OpenGroup instance;
  return instance;
}

std::pair<int, int> lane_of(const ncclComm& communicator, const Group::Message& message) {
  return message.sends ? std::pair(communicator.rank, message.peer) : std::pair(message.peer, communicator.rank);
}

/// Returns the communicator's remote ranks if the message's peer is in another process, otherwise null.
RemoteRanks* remote_of(const ncclComm& communicator, const Group::Message& message) {
  return communicator.remote && communicator.remote->has(message.peer) ? communicator.remote.get() : nullptr;
}

/// Posts the thread's group. The communicator is in progress from now on.
ncclResult_t begin_posting(std::shared_ptr<Group> group) {
  ncclComm& communicator = group->communicator;
  for (const Group::Message& message : group->messages) {
    RankSet::Lane& lane = communicator.rank_set->lanes[lane_of(communicator, message)];
    (message.sends ? lane.sender_came : lane.receiver_came) = true;
    if (RemoteRanks* const remote = remote_of(communicator, message)) remote->come(message);
  }
  communicator.phase = ncclComm::Phase::posting;
  communicator.polls = state().polls;
  communicator.posting = std::move(group);
  return ncclInProgress;
}

/// The two sides of a message have met and must agree.
void pair_up(const std::shared_ptr<Group>& group, std::size_t index, const Half& other) {
  const auto theirs = other.group.lock();
  Group::Message &mine = group->messages[index], &yours = theirs->messages[other.index];
  if (mine.bytes == yours.bytes && mine.type == yours.type) {
    mine.other = other;
    yours.other = {group, index};
    return;
  }
  const Group::Message &sent = mine.sends ? mine : yours, &received = mine.sends ? yours : mine;
  const auto why = disagreement(received.peer, {sent.bytes, sent.type}, sent.peer, {received.bytes, received.type});
  break_communicator(group->communicator, ncclInternalError, why);
  break_communicator(theirs->communicator, ncclInternalError, why);
}

/// Injects the faults that tests request for the groups of this device.
void inject_fault(Group& group) {
  auto& faults = state().faults;
  for (auto fault = faults.begin(); fault != faults.end();) {
    if (fault->device != group.communicator.device || --fault->groups > 0) {
      ++fault;
      continue;
    }
    group.hangs = true;
    group.communicator.error_to_come = fault->error;
    group.communicator.polls_to_error = 2;  // the posting rank may poll once more: another rank must find the error
    fault = faults.erase(fault);
  }
}

/// Injects the fault that the environment requests for a rank that is a process (CUDA_EMULATOR_NCCL_FAULT).
void inject_fault_of_environment(Group& group) {
  static const char* const wanted = std::getenv("CUDA_EMULATOR_NCCL_FAULT");
  static int groups = 0;
  int rank = 0, nth = 0;
  char action[8] = {};
  if (wanted == nullptr) return;
  if (std::sscanf(wanted, "%d:%d:%7s", &rank, &nth, action) != 3) {
    throw Error(fmt::format("CUDA_EMULATOR_NCCL_FAULT: '{}' is not RANK:NTH:ACTION", wanted));
  }
  if (group.communicator.rank != rank || ++groups < nth) return;
  const std::string_view does = action;
  if (does == "leave") std::_Exit(0);
  group.hangs = does == "hang";
  group.wrong = does == "wrong";
}

void launch(Runtime& runtime, const std::shared_ptr<Group>& group, Streams::Lock& lock) {
  ncclComm& communicator = group->communicator;
  std::size_t bytes = 0;
  inject_fault(*group);
  inject_fault_of_environment(*group);
  for (std::size_t i = 0; i < group->messages.size(); ++i) {
    Group::Message& message = group->messages[i];
    if (message.sends) bytes += message.bytes;
    if (RemoteRanks* const remote = remote_of(communicator, message)) {
      remote->post(message);
      continue;
    }
    auto& waiting = communicator.rank_set->lanes[lane_of(communicator, message)].waiting;
    const auto other_side = [&](const Half& half) {
      const auto other = half.group.lock();
      return other && !other->aborted && other->messages[half.index].sends != message.sends;
    };
    while (!waiting.empty() && waiting.front().group.expired()) waiting.pop_front();
    if (!waiting.empty() && other_side(waiting.front())) {
      pair_up(group, i, waiting.front());
      waiting.pop_front();
    } else {
      waiting.push_back({group, i});
    }
  }
  std::erase_if(communicator.groups, [](const auto& one) { return one.expired(); });
  communicator.groups.push_back(group);
  runtime.streams.add(group->stream, {Trace::Kind::exchange, "NCCL group", bytes, {}, {}, group}, lock);
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    case ncclFloat64:
      return 8;
  }
  return 0;
}

std::string fault_of_memory(Runtime& runtime, const ncclComm& communicator, const void* data, std::size_t bytes) {
  const Allocation* memory = runtime.memory.find(data);
  if (memory == nullptr || memory->pinned) return "memory that is no device's";
  if (memory->device != communicator.device) return "memory of another device";
  if (!runtime.memory.whole(data, bytes)) return "more than the memory that was allocated";
  return "";
}

std::string disagreement(int sender, const Side& sent, int receiver, const Side& received) {
  return fmt::format("rank {} receives {} bytes as type {}, but rank {} sends {} as type {}", receiver, received.bytes,
                     received.type, sender, sent.bytes, sent.type);
}

bool Group::done() const {
  return aborted || std::all_of(messages.begin(), messages.end(), [](const Message& one) { return one.done; });
}

Meeting::Progress Group::advance() {
  if (aborted) {
    open_device_memory();
    for (const Message& one : messages) {  // an aborted kernel leaves what it has written so far
      if (!one.sends && !one.done) std::memset(one.data, 0xff, one.bytes);
    }
    return Progress::all;
  }
  if (hangs) return Progress::none;
  Progress progress = Progress::none;
  if (!begun) {
    begun = true;
    for (const Message& one : messages) {
      if (!one.sends) std::memset(one.data, 0xff, one.bytes);
      if (RemoteRanks* const remote = remote_of(communicator, one)) remote->begin(one);
    }
    for (const Closing& one : closings) one.begin();
    progress = Progress::some;
  }
  if (move()) progress = Progress::some;
  if (!done()) return progress;
  for (const Message& one : messages) {
    if (wrong && !one.sends) *static_cast<unsigned char*>(one.data) ^= 1;
  }
  for (const Closing& one : closings) one.end();
  return Progress::all;
}

bool Group::move() {
  bool moved = false;
  for (Message& one : messages) {
    if (one.done) continue;
    if (RemoteRanks* const remote = remote_of(communicator, one)) {
      moved = remote->move(one) || moved;
      continue;
    }
    const auto theirs = one.other.group.lock();
    if (!theirs || !theirs->runs()) continue;
    Message& other = theirs->messages[one.other.index];
    std::memcpy(one.sends ? other.data : one.data, one.sends ? one.data : other.data, one.bytes);
    one.done = other.done = true;
    moved = true;
  }
  return moved;
}

std::vector<std::shared_ptr<cuda_emulator::Stream>> Group::awaited() const {
  std::vector<std::shared_ptr<cuda_emulator::Stream>> streams;
  if (hangs) return streams;
  for (const Message& one : messages) {
    const auto theirs = one.done ? nullptr : one.other.group.lock();
    if (theirs && theirs.get() != this) streams.push_back(theirs->stream);
  }
  return streams;
}

bool in_group() {
  return open_group().depth > 0;
}

bool go_on_posting(Runtime& runtime, ncclComm& communicator, Streams::Lock& lock) {
  for (const Group::Message& message : communicator.posting->messages) {
    const RankSet::Lane& lane = communicator.rank_set->lanes[lane_of(communicator, message)];
    const RemoteRanks* const remote = remote_of(communicator, message);
    if (remote != nullptr ? !remote->connected(message) : !lane.sender_came || !lane.receiver_came) return false;
  }
  if (--communicator.polls > 0) return false;
  launch(runtime, std::exchange(communicator.posting, nullptr), lock);
  return communicator.error == ncclSuccess;
}

ncclResult_t group_start() {
  const CallGuard guard(runtime());
  if (const ncclResult_t result = injected("ncclGroupStart"); result != ncclSuccess) return result;
  ++open_group().depth;
  return ncclSuccess;
}

ncclResult_t bucket_end() {
  const CallGuard guard(runtime());
  OpenGroup& open = open_group();
  if (open.depth == 0) return misuse("ncclGroupEnd without ncclGroupStart");
  if (--open.depth > 0) return ncclSuccess;
  const auto group = std::exchange(open.group, nullptr);
  const ncclResult_t error = std::exchange(open.error, ncclSuccess);
  if (const ncclResult_t result = injected("ncclGroupEnd"); result != ncclSuccess) return result;
  if (error != ncclSuccess) return error;
  if (!group) return ncclSuccess;
  if (!usable("ncclGroupEnd", &group->communicator)) return ncclInvalidArgument;
  return begin_posting(group);
}

ncclResult_t post_operation(const char* function, ncclComm_t communicator, cudaStream_t handle,
                            const std::function<std::string(Runtime&, ncclComm&, Group&)>& add) {
  return call(function, communicator, [&](Runtime& runtime, ncclComm& one, Streams::Lock&) {
    OpenGroup& open = open_group();
    const auto refused = [&](ncclResult_t result) {
      if (open.depth > 0 && open.error == ncclSuccess) open.error = result;
      return result;
    };
    const auto wrong = [&](const std::string& what) {
      misuse(fmt::format("{}{}", function, what));
      return refused(ncclInvalidArgument);
    };
    const auto stream = runtime.stream(handle);
    if (one.error != ncclSuccess) return refused(one.error);
    if (one.phase != ncclComm::Phase::ready) {
      return wrong(" before the communicator's previous operation returned ncclSuccess");
    }
    if (!stream || stream->device != one.device) return wrong(": a stream that is not of the communicator's device");
    if (open.group && (&open.group->communicator != &one || open.group->stream != stream)) {
      return refused(misuse("a group of several communicators or streams, which the emulator does not have"));
    }
    const auto group = open.group ? open.group : std::make_shared<Group>(one, stream);
    const std::string fault = add(runtime, one, *group);
    if (!fault.empty()) return wrong(": " + fault);
    if (open.depth == 0) return begin_posting(group);
    open.group = group;
    return ncclSuccess;
  });
}

ncclResult_t post(const char* function, bool sends, void* data, std::size_t count, ncclDataType_t type, int peer,
                  ncclComm_t communicator, cudaStream_t stream) {
  return post_operation(function, communicator, stream, [&](Runtime& runtime, ncclComm& one, Group& group) {
    const std::size_t bytes = count * size_of(type);
    if (peer < 0 || peer >= one.rank_set->size) return fmt::format("peer {} of {} ranks", peer, one.rank_set->size);
    std::string fault = fault_of_memory(runtime, one, data, bytes);
    if (fault.empty()) group.messages.push_back({sends, data, bytes, type, peer});
    return fault;
  });
}

}  // namespace cuda_emulator::nccl
