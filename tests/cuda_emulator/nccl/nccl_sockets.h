// Sockets between ranks of the emulated NCCL that are processes of one machine, a pair of ranks of a communicator one.
// Their names are made of the unique id and the rank in Linux's abstract namespace: every rank can compute them, and
// they end with the process, however it ends. Nothing here waits: what a socket does not take is kept until it does.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace cuda_emulator::nccl {

/// The device that a rank has, and the host that it is on, as NCCL sees it.
struct Place {
  std::int32_t device = 0;
  std::uint64_t host = 0;
  auto operator<=>(const Place&) const = default;
};
/// Returns that of a rank of this process. NCCL_HOSTID tells its host from those of other processes.
Place place_of(int device);

/// What ranks tell each other. A message between them is named by who sends it and its number in that direction.
struct Frame {
  enum class Kind : std::uint32_t {
    hello = 1,    // who it is: rank, ranks, where; the first frame of both sides
    came = 2,     // it takes its side in connecting one direction
    posted = 3,   // its side of a message is on a stream: bytes, type
    begun = 4,    // the group of its side runs
    needed = 5,   // its group waits for the other side's
    data = 6,     // the message itself
    leaving = 7,  // it has called ncclCommFinalize
    split = 8,    // it has called ncclCommSplit: colour, key
  };
  Kind kind = Kind::hello;
  std::uint32_t sends = 0;  // 1: who writes the frame is the one that sends the message
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;  // of the message
  std::int32_t type = 0;
  std::int32_t rank = 0, ranks = 0;
  Place where;
  std::int32_t colour = 0, key = 0;
};

/// One connected socket.
class Connection {
 public:
  explicit Connection(int socket) : socket_(socket) {}
  ~Connection();
  Connection(Connection&& other) noexcept;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int socket() const { return socket_; }
  /// data: of a frame that is data, its bytes.
  void send(const Frame& frame, const void* data = nullptr);
  /// Writes what was kept, as far as the socket takes it.
  void flush();
  bool has_kept() const { return !kept_.empty(); }

  struct Received {
    Frame frame;
    std::string data;
  };
  /// Returns the next frame that has come whole; false: there is none.
  bool receive(Received& received);
  /// Returns whether the other side has closed; what came before is still to be received.
  bool closed() const { return closed_; }

 private:
  int socket_;
  std::string kept_, come_;
  bool closed_ = false;
};

/// Returns a socket at which a rank of this unique id can be reached; -1: there is one already.
int listen_as(std::uint64_t unique_id, int rank);
/// Returns a socket to it; -1: it does not listen (yet).
int connect_to(std::uint64_t unique_id, int rank);
/// Returns the next connection that was made to the listener; -1: there is none.
int accept_at(int listener);

}  // namespace cuda_emulator::nccl
