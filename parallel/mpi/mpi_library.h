// The only wrapper of MPI; no other file includes mpi.h. Messages have any number of bytes (cut into chunks that MPI's
// counts can represent) and never block; a few blocking calls are made at the start and at the end. Only one thread at
// a time may use it, which the callers' lock ensures. CMake finds the library; without one, this file is not built.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace ringtrain::mpi {

/// The processes of MPI_COMM_WORLD. One object per process.
class Session {
 public:
  /// Joins the others (MPI_Init). Throws Error(rank) if the library cannot be used by several threads in turn.
  Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }
  int max_tag() const { return max_tag_; }
  /// all [size * bytes] = part [bytes] of every process, by rank. Blocking.
  void all_gather(const void* part, void* all, std::size_t bytes) const;
  /// Leaves MPI, together with all others. Blocks if one of them never calls it, so it is called only if all will. A
  /// process that ends after an error must not call it.
  void finish();

 private:
  int rank_ = 0, size_ = 1;
  int max_tag_ = 32767;  // supported by every MPI
};

/// A pending send or receive. Its buffer must outlive it; destroying it neither ends it nor waits.
class Transfer {
 public:
  Transfer() = default;  // of nothing: done
  /// Starts sending. tag: 0 to Session::max_tag(). Between two processes, messages with the same tag keep their order.
  static Transfer send(const void* data, std::size_t bytes, int to, int tag);
  static Transfer receive(void* data, std::size_t bytes, int from, int tag);
  /// Lets MPI work; returns whether the transfer is done. Throws Error(rank) if MPI reports a failure, including a
  /// message that was longer than the buffer.
  bool test();

 private:
  struct Requests;
  explicit Transfer(std::shared_ptr<Requests> requests) : requests_(std::move(requests)) {}
  template <class Post>
  static Transfer in_chunks(std::size_t bytes, const Post& post);

  std::shared_ptr<Requests> requests_;  // null: done
};

/// Messages are cut into chunks of at most this many bytes. For tests; it must be the same on all processes, and only
/// change between messages.
void set_chunk_bytes(std::size_t bytes);

}  // namespace ringtrain::mpi
