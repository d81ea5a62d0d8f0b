// How ranks in several processes find each other, and how their messages move.
#include "nccl/nccl_remote_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace cuda_emulator::nccl {

namespace {

bool deaths_are_seen() {
  static const bool unseen = [] {
    const char* const set = std::getenv("CUDA_EMULATOR_NCCL_DEATHS");
    return set != nullptr && set == std::string("unseen");
  }();
  return !unseen;
}

Frame frame_of(Frame::Kind kind, const Group::Message& message) {
  Frame frame;
  frame.kind = kind;
  frame.sends = message.sends ? 1 : 0;
  frame.number = message.number;
  frame.bytes = message.bytes;
  frame.type = message.type;
  return frame;
}

}  // namespace

RemoteRanks::RemoteRanks(ncclComm& of, std::uint64_t unique_id)
    : communicator_(of), unique_id_(unique_id), listener_(listen_as(unique_id, of.rank)) {
  if (listener_ < 0) {
    misuse(fmt::format("ncclCommInitRankConfig: rank {} of another process has this unique id", of.rank));
  }
  wake_receiver();
}

RemoteRanks::~RemoteRanks() {
  if (listener_ >= 0) ::close(listener_);
  wake_receiver();
}

// --- Joining. The higher rank of a pair connects; both identify themselves.

void RemoteRanks::greet(Connection& connection) const {
  Frame hello;
  hello.rank = communicator_.rank;
  hello.ranks = communicator_.rank_set->size;
  hello.where = rank_device(communicator_.device);
  connection.send(hello);
}

void RemoteRanks::seek() {
  for (int lower = 0; lower < communicator_.rank; ++lower) {
    const bool known = communicator_.rank_set->members.contains(lower) || ranks_.contains(lower);
    if (known || sought_.contains(lower)) continue;
    const int socket = connect_to(unique_id_, lower);
    if (socket < 0) continue;
    sought_.insert(lower);
    greet(strangers_.emplace_back(socket));
    wake_receiver();
  }
}

void RemoteRanks::meet(Connection connection, const Frame& hello) {
  if (hello.ranks != communicator_.rank_set->size || hello.rank < 0 || hello.rank >= hello.ranks || has(hello.rank)) {
    misuse(fmt::format("ncclCommInitRankConfig: rank {} of {} joins rank {} of {}, or twice", hello.rank, hello.ranks,
                       communicator_.rank, communicator_.rank_set->size));
    return;
  }
  if (hello.rank > communicator_.rank) greet(connection);
  ranks_.try_emplace(hello.rank, std::move(connection)).first->second.where = hello.where;
}

std::map<int, RankDevice> RemoteRanks::places() const {
  std::map<int, RankDevice> found;
  for (const auto& [number, rank] : ranks_) found[number] = rank.where;
  return found;
}

// --- Messages.

RemoteRanks::Lane& RemoteRanks::lane_of(const Group::Message& message) {
  Rank& rank = ranks_.at(message.peer);
  return message.sends ? rank.from_us : rank.to_us;
}
const RemoteRanks::Lane& RemoteRanks::lane_of(const Group::Message& message) const {
  const Rank& rank = ranks_.at(message.peer);
  return message.sends ? rank.from_us : rank.to_us;
}

void RemoteRanks::come(const Group::Message& message) {
  if (std::exchange(lane_of(message).we_came, true)) return;
  ranks_.at(message.peer).connection.send(frame_of(Frame::Kind::came, message));
}

bool RemoteRanks::connected(const Group::Message& message) const {
  return lane_of(message).they_came;
}

void RemoteRanks::post(Group::Message& message) {
  Lane& lane = lane_of(message);
  message.number = ++lane.posted;
  ranks_.at(message.peer).connection.send(frame_of(Frame::Kind::posted, message));
  const auto theirs = lane.theirs.find(message.number);
  if (theirs != lane.theirs.end()) require_agreement(message.peer, message, theirs->second);
  if (lane.needed >= message.number) wake_receiver();
}

void RemoteRanks::require_agreement(int rank, const Group::Message& ours, const Lane::Theirs& theirs) {
  if (ours.bytes == theirs.bytes && ours.type == theirs.type) return;
  const int sender = ours.sends ? communicator_.rank : rank, receiver = ours.sends ? rank : communicator_.rank;
  break_communicator(
      communicator_, ncclInternalError,
      disagreement(sender, {ours.sends ? ours.bytes : theirs.bytes, ours.sends ? ours.type : theirs.type}, receiver,
                   {ours.sends ? theirs.bytes : ours.bytes, ours.sends ? theirs.type : ours.type}));
}

void RemoteRanks::begin(const Group::Message& message) {
  ranks_.at(message.peer).connection.send(frame_of(Frame::Kind::begun, message));
}

bool RemoteRanks::move(Group::Message& message) {
  Lane& lane = lane_of(message);
  const auto theirs = lane.theirs.find(message.number);
  const bool agreed = theirs != lane.theirs.end() && theirs->second.bytes == message.bytes;  // otherwise it is broken
  const bool here = agreed && (message.sends ? theirs->second.begun : theirs->second.come);
  if (here) {
    if (message.sends) {
      ranks_.at(message.peer).connection.send(frame_of(Frame::Kind::data, message), message.data);
    } else {
      std::memcpy(message.data, theirs->second.data.data(), message.bytes);
    }
    lane.theirs.erase(theirs);
    message.done = true;
    wake_receiver();  // if the socket has not accepted all of it
    return true;
  }
  if (!std::exchange(message.needs, true)) {
    ranks_.at(message.peer).connection.send(frame_of(Frame::Kind::needed, message));
  }
  return false;
}

void RemoteRanks::send_split(const SplitCall& call) {
  Frame frame;
  frame.kind = Frame::Kind::split;
  frame.color = call.color;
  frame.key = call.key;
  for (auto& [number, rank] : ranks_) rank.connection.send(frame);
}

std::map<int, SplitCall> RemoteRanks::splits(std::size_t number) const {
  std::map<int, SplitCall> calls;
  for (const auto& [at, rank] : ranks_) {
    if (rank.splits.size() > number) calls[at] = rank.splits[number];
  }
  return calls;
}

void RemoteRanks::leave() {
  Frame frame;
  frame.kind = Frame::Kind::leaving;
  for (auto& [number, rank] : ranks_) rank.connection.send(frame);
}

int RemoteRanks::leaving() const {
  return static_cast<int>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const auto& entry) { return entry.second.leaving; }));
}

// --- Receiving.

std::vector<int> RemoteRanks::sockets() const {
  std::vector<int> all{listener_};
  for (const auto& [number, rank] : ranks_) {
    if (!rank.lost) all.push_back(rank.connection.socket());
  }
  for (const Connection& connection : strangers_) all.push_back(connection.socket());
  return all;
}

std::vector<int> RemoteRanks::kept() const {
  std::vector<int> all;
  for (const auto& [number, rank] : ranks_) {
    if (rank.connection.has_kept()) all.push_back(rank.connection.socket());
  }
  return all;
}

void RemoteRanks::receive() {
  Connection::Received received;
  for (int socket = accept_at(listener_); socket >= 0; socket = accept_at(listener_)) strangers_.emplace_back(socket);
  for (auto connection = strangers_.begin(); connection != strangers_.end();) {
    const bool arrived = connection->receive(received);
    if (arrived) meet(std::move(*connection), received.frame);
    if (connection->closed() && !arrived && communicator_.phase == ncclComm::Phase::joining) {
      break_communicator(communicator_, ncclRemoteError, "a rank closed its connection before all had joined");
    }
    connection = arrived || connection->closed() ? strangers_.erase(connection) : std::next(connection);
  }
  for (auto& [number, rank] : ranks_) {
    rank.connection.flush();
    while (rank.connection.receive(received)) take(number, rank, received);
    if (rank.connection.closed() && !std::exchange(rank.lost, true)) lose(number, rank);
  }
}

void RemoteRanks::take(int number, Rank& rank, Connection::Received& received) {
  const Frame& frame = received.frame;
  Lane& lane = frame.sends != 0 ? rank.to_us : rank.from_us;
  switch (frame.kind) {
    case Frame::Kind::hello:
      break;
    case Frame::Kind::came:
      lane.they_came = true;
      break;
    case Frame::Kind::posted: {
      Lane::Theirs& theirs = lane.theirs[frame.number];
      theirs.bytes = frame.bytes;
      theirs.type = frame.type;
      for (const auto& weak : communicator_.groups) {
        const auto group = weak.lock();
        if (!group) continue;
        for (const Group::Message& ours : group->messages) {
          if (ours.peer == number && ours.sends == (frame.sends == 0) && ours.number == frame.number) {
            require_agreement(number, ours, theirs);
          }
        }
      }
      break;
    }
    case Frame::Kind::begun:
      lane.theirs[frame.number].begun = true;
      break;
    case Frame::Kind::needed:
      lane.needed = std::max(lane.needed, frame.number);
      break;
    case Frame::Kind::data:
      lane.theirs[frame.number].come = true;
      lane.theirs[frame.number].data = std::move(received.data);
      break;
    case Frame::Kind::split:
      rank.splits.push_back({frame.color, frame.key});
      break;
    case Frame::Kind::leaving:
      rank.leaving = true;
      break;
  }
}

void RemoteRanks::lose(int number, Rank& rank) {
  const bool joining = communicator_.phase == ncclComm::Phase::joining;
  if (rank.leaving || communicator_.error != ncclSuccess || (!joining && !deaths_are_seen())) return;
  break_communicator(communicator_, ncclRemoteError, fmt::format("connection closed by rank {}", number));
}

bool RemoteRanks::serve(Runtime& runtime, Streams::Lock& lock) {
  bool stuck = false;
  const auto waited_for = [&](const Group& group) {
    return std::any_of(group.messages.begin(), group.messages.end(), [&](const Group::Message& one) {
      return one.number > 0 && one.number <= lane_of(one).needed && !(one.sends ? one.done : group.begun);
    });
  };
  const auto groups = communicator_.groups;  // running work may add more
  for (const auto& weak : groups) {
    const auto group = weak.lock();
    while (group && !group->aborted && waited_for(*group)) {
      if (runtime.streams.nudge(group->stream, lock)) continue;
      stuck = true;
      break;
    }
  }
  return stuck;
}

}  // namespace cuda_emulator::nccl
