// Sockets between ranks of the emulated NCCL that are processes of one machine, one for each pair of ranks of a
// communicator. Their names are made from the unique id and the rank in Linux's abstract namespace: every rank can
// compute them, and they disappear with the process, however it ends. Nothing here waits: data that a socket does not
// accept is kept until it does.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace cuda_emulator::nccl {

/// A rank's device and its host, as NCCL sees them.
struct RankDevice {
  std::int32_t device = 0;
  std::uint64_t host = 0;
  auto operator<=>(const RankDevice&) const = default;
};
/// Returns those of a rank of this process. NCCL_HOSTID distinguishes its host from those of other processes.
RankDevice rank_device(int device);

/// A message between ranks' processes. A message of NCCL is identified by its sender and its number in that direction.
struct Frame {
  enum class Kind : std::uint32_t {
    hello = 1,    // identification: rank, ranks, device and host; the first frame of both sides
    came = 2,     // it begins its side of connecting one direction
    posted = 3,   // its side of a message is on a stream: bytes, type
    begun = 4,    // the group of its side runs
    needed = 5,   // its group waits for the other side's
    data = 6,     // the message itself
    leaving = 7,  // it has called ncclCommFinalize
    split = 8,    // it has called ncclCommSplit: color, key
  };
  Kind kind = Kind::hello;
  std::uint32_t sends = 0;  // 1: the writer of the frame is the sender of the message
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;  // of the message
  std::int32_t type = 0;
  std::int32_t rank = 0, ranks = 0;
  RankDevice where;
  std::int32_t color = 0, key = 0;
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
  /// data: the bytes, for a frame that is data.
  void send(const Frame& frame, const void* data = nullptr);
  /// Writes what was kept, as far as the socket accepts it.
  void flush();
  bool has_kept() const { return !kept_.empty(); }

  struct Received {
    Frame frame;
    std::string data;
  };
  /// Returns the next complete frame; false: there is none.
  bool receive(Received& received);
  /// Returns whether the other side has closed; earlier data can still be received.
  bool closed() const { return closed_; }

 private:
  int socket_;
  std::string kept_, come_;
  bool closed_ = false;
};

/// Returns a socket at which a rank of this unique id can be reached; -1: one already exists.
int listen_as(std::uint64_t unique_id, int rank);
/// Returns a socket to it; -1: it does not listen (yet).
int connect_to(std::uint64_t unique_id, int rank);
/// Returns the next connection to the listener; -1: there is none.
int accept_at(int listener);

}  // namespace cuda_emulator::nccl
