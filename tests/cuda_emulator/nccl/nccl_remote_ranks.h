// The ranks of a communicator of the emulated NCCL that are other processes: the same rules as between threads,
// implemented with frames (nccl_sockets.h). A message moves once the groups of both its sides run. A waiting rank
// notifies the other side, whose process then runs the stream of its group only as far as needed: stream work is as
// late here as among threads. One thread of the process, the receiver, receives everything.
//
// A process that ends, or aborts its communicator, closes its sockets. As over a network, the others' communicators
// then have ncclRemoteError. Within one machine the real NCCL does not notice (NVIDIA/nccl 279), and neither does this
// one with CUDA_EMULATOR_NCCL_DEATHS=unseen. Before all have joined, it is always noticed, because NCCL's ranks meet
// over sockets.
#pragma once

#include <list>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nccl/nccl_groups.h"
#include "nccl/nccl_sockets.h"

namespace cuda_emulator::nccl {

class RemoteRanks {
 public:
  /// of: the communicator of this object.
  RemoteRanks(ncclComm& of, std::uint64_t unique_id);
  ~RemoteRanks();
  RemoteRanks(const RemoteRanks&) = delete;
  RemoteRanks& operator=(const RemoteRanks&) = delete;

  /// Searches for the ranks of other processes.
  void seek();
  int joined() const { return static_cast<int>(ranks_.size()); }
  /// Returns where they are, by rank.
  std::map<int, RankDevice> places() const;
  /// Returns whether this rank is one of them.
  bool has(int rank) const { return ranks_.contains(rank); }

  /// This rank begins its side of connecting to the message's peer.
  void come(const Group::Message& message);
  /// Returns whether both sides have done so.
  bool connected(const Group::Message& message) const;
  /// This rank's side of the message is on a stream: assigns its number.
  void post(Group::Message& message);
  /// The group of the message has begun.
  void begin(const Group::Message& message);
  /// Moves the message if the other side also runs; otherwise notifies it that it is needed. Returns whether it moved.
  bool move(Group::Message& message);
  /// This rank has called ncclCommSplit.
  void send_split(const SplitCall& call);
  /// Returns the arguments of those that have called their split with this number (from 0), by rank.
  std::map<int, SplitCall> splits(std::size_t number) const;
  /// This rank has called ncclCommFinalize.
  void leave();
  /// Returns how many of them have.
  int leaving() const;

  // For the receiver.

  std::vector<int> sockets() const;
  /// Returns the sockets that have something left to write.
  std::vector<int> kept() const;
  /// Receives what has arrived.
  void receive();
  /// Runs the work for which other processes wait. Returns whether some of it was posted but could not run yet.
  bool serve(Runtime& runtime, Streams::Lock& lock);

 private:
  /// The state of one direction of messages.
  struct Lane {
    struct Theirs {
      std::uint64_t bytes = 0;
      int type = 0;
      bool begun = false, come = false;
      std::string data;
    };
    bool we_came = false, they_came = false;
    std::uint64_t posted = 0;                // our messages, which are numbered from 1
    std::uint64_t needed = 0;                // the last one of ours for which they wait
    std::map<std::uint64_t, Theirs> theirs;  // by number
  };
  struct Rank {
    explicit Rank(Connection own) : connection(std::move(own)) {}
    Connection connection;
    RankDevice where;
    Lane from_us, to_us;
    std::vector<SplitCall> splits;
    bool leaving = false, lost = false;
  };

  Lane& lane_of(const Group::Message& message);
  const Lane& lane_of(const Group::Message& message) const;
  void greet(Connection& connection) const;
  void meet(Connection connection, const Frame& hello);
  void take(int number, Rank& rank, Connection::Received& received);
  void lose(int number, Rank& rank);
  void require_agreement(int rank, const Group::Message& ours, const Lane::Theirs& theirs);

  ncclComm& communicator_;
  const std::uint64_t unique_id_;
  int listener_ = -1;
  std::set<int> sought_;             // connected to
  std::map<int, Rank> ranks_;        // joined
  std::list<Connection> strangers_;  // connected, but not identified yet
};

/// Makes the receiver check the sockets again; starts it if necessary.
void wake_receiver();

}  // namespace cuda_emulator::nccl
