// Sockets between the processes of a run, one for each pair, beside the library that moves the data. Over them ranks
// send the first error and their last calls, and say that they leave. They notice at once that a process has died,
// whatever state that library is in. Nothing is sent while all goes well. IPv4.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/error.h"
#include "parallel/mpi/mpi_library.h"

namespace ringtrain {

/// What a rank reports to the others, or what is known of one that is lost.
struct RankMessage {
  enum class Kind : std::uint32_t {
    failure = 1,   // code and sentence of the first error it knows of, and what it did last
    goodbye = 2,   // it is done, and all is well
    reported = 3,  // it prints the error's report: no other rank does (one that was stopped, say, and goes on)
    lost = 4,      // not sent: its socket has closed
  };
  Kind kind = Kind::lost;
  int rank = 0;  // who sends it, or is lost
  ExitCode code = ExitCode::rank;
  std::string sentence, calls;
};

class RankSockets {
 public:
  /// Collective: connects every pair of processes. Throws Error(rank) that names whom it cannot reach.
  explicit RankSockets(const mpi::Session& session);

  /// Sends to all that can be reached. Any thread; never waits for long.
  void send(const RankMessage& message);
  /// Returns what has come, after at most `seconds` (none if nothing has), or after wake(). One thread. Of a lost rank
  /// nothing follows.
  std::vector<RankMessage> receive(double seconds);
  /// Ends a receive() that waits, or the next one. Any thread.
  void wake();

  /// Returns "process 1234 on host a".
  const std::string& name(int rank) const { return names_[rank]; }
  /// Returns the ranks whose processes run on this host, ascending.
  const std::vector<int>& ranks_here() const { return here_; }

 private:
  /// A descriptor, closed at its end; -1: none.
  class Descriptor {
   public:
    explicit Descriptor(int value = -1) : value_(value) {}
    ~Descriptor();
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    operator int() const { return value_; }  // NOLINT(google-explicit-constructor): as system calls take it
    void take(Descriptor& other) { std::swap(value_, other.value_); }

   private:
    int value_;
  };
  struct Address;
  struct Peer {
    Descriptor socket;
    std::string buffer;  // received, not yet a whole message; receive()'s
    bool lost = false;   // receive()'s
  };
  void connect_to(int rank, const Address& target);
  void accept_from_higher(int listener);
  void read(int rank, std::vector<RankMessage>& messages);

  const int rank_;
  std::uint64_t secret_ = 0;  // of this run: nobody else's connection is taken for a rank's
  std::vector<Peer> peers_;   // by rank
  std::vector<std::string> names_;
  std::vector<int> here_;
  Descriptor wake_;  // eventfd
};

}  // namespace ringtrain
