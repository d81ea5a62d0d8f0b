// Sockets between the processes of a run, one for each pair, independent of the library that moves the data. Ranks use
// them to send the first error and their last calls, and to say that they leave. They notice at once that a process has
// died, whatever state that library is in. Nothing is sent while everything works. IPv4.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/error.h"
#include "parallel/mpi/mpi_library.h"

namespace ringtrain {

/// A rank's report to the others, or the information that a rank is lost.
struct RankMessage {
  enum class Kind : std::uint32_t {
    failure = 1,   // code and message of the first error that it knows, and its last calls
    goodbye = 2,   // it is done, and everything succeeded
    reported = 3,  // it prints the error's report, so no other rank does (e.g. one that was stopped and continues)
    lost = 4,      // not sent: its socket has closed
  };
  Kind kind = Kind::lost;
  int rank = 0;  // the sender, or the lost rank
  ExitCode code = ExitCode::rank;
  std::string sentence, calls;
};

class RankSockets {
 public:
  /// Collective: connects every pair of processes. Throws Error(rank) that names the unreachable ranks.
  explicit RankSockets(const mpi::Session& session);

  /// Sends to all reachable ranks. May be called by any thread; never waits for long.
  void send(const RankMessage& message);
  /// Returns the messages that have arrived, after at most `seconds` (none if nothing has arrived), or after wake().
  /// For one thread. A lost rank sends nothing more.
  std::vector<RankMessage> receive(double seconds);
  /// Ends a waiting receive(), or the next one. May be called by any thread.
  void wake();

  /// Returns "process 1234 on host a".
  const std::string& name(int rank) const { return names_[rank]; }
  /// Returns the ranks whose processes run on this host, ascending.
  const std::vector<int>& ranks_here() const { return here_; }

 private:
  /// A descriptor that is closed by the destructor; -1: none.
  class Descriptor {
   public:
    explicit Descriptor(int value = -1) : value_(value) {}
    ~Descriptor();
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    operator int() const { return value_; }  // NOLINT(google-explicit-constructor): for system calls
    void take(Descriptor& other) { std::swap(value_, other.value_); }

   private:
    int value_;
  };
  struct Address;
  struct Peer {
    Descriptor socket;
    std::string buffer;  // received, but not yet a complete message; used by receive()
    bool lost = false;   // used by receive()
  };
  void connect_to(int rank, const Address& target);
  void accept_from_higher(int listener);
  void read(int rank, std::vector<RankMessage>& messages);

  const int rank_;
  std::uint64_t secret_ = 0;  // of this run, so that no other connection is taken for a rank's
  std::vector<Peer> peers_;   // by rank
  std::vector<std::string> names_;
  std::vector<int> here_;
  Descriptor wake_;  // eventfd
};

}  // namespace ringtrain
