#include "parallel/mpi/mpi_library.h"

// Only the C interface; the old C++ interface causes warnings.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "framework/error.h"

namespace ringtrain::mpi {

namespace {

std::size_t chunk_bytes = std::size_t{1} << 30;

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(ExitCode::rank, "MPI: {}: {}", what, text);
}

int count_of(std::size_t bytes) {
  ensure(bytes <= static_cast<std::size_t>(std::numeric_limits<int>::max()), "a chunk that MPI can count");
  return static_cast<int>(bytes);
}

}  // namespace

Session::Session() {
  int provided = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "start");
  if (provided < MPI_THREAD_SERIALIZED) {
    fail(ExitCode::rank,
         "this MPI library lets only one thread call it, but ranks need two that take turns; use a library with "
         "MPI_THREAD_SERIALIZED");
  }
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "error handler");
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "size");
  void* upper_bound = nullptr;
  int known = 0;
  check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&upper_bound), &known), "largest tag");
  if (known) max_tag_ = *static_cast<const int*>(upper_bound);
}

void Session::all_gather(const void* part, void* all, std::size_t bytes) const {
  check(MPI_Allgather(part, count_of(bytes), MPI_BYTE, all, count_of(bytes), MPI_BYTE, MPI_COMM_WORLD), "gather");
}

void Session::finish() {
  check(MPI_Finalize(), "end");
}

struct Transfer::Requests {
  std::vector<MPI_Request> chunks;
};

/// Calls post(byte offset, count, request) for each chunk of a message; a message of 0 bytes has one chunk.
template <class Post>
Transfer Transfer::in_chunks(std::size_t bytes, const Post& post) {
  const auto requests = std::make_shared<Requests>();
  std::size_t at = 0;
  do {
    const std::size_t count = std::min(bytes - at, chunk_bytes);
    requests->chunks.push_back(MPI_REQUEST_NULL);
    post(at, count_of(count), &requests->chunks.back());
    at += count;
  } while (at < bytes);
  return Transfer(requests);
}

Transfer Transfer::send(const void* data, std::size_t bytes, int to, int tag) {
  return in_chunks(bytes, [&](std::size_t at, int count, MPI_Request* request) {
    check(MPI_Isend(static_cast<const char*>(data) + at, count, MPI_BYTE, to, tag, MPI_COMM_WORLD, request), "send");
  });
}

Transfer Transfer::receive(void* data, std::size_t bytes, int from, int tag) {
  return in_chunks(bytes, [&](std::size_t at, int count, MPI_Request* request) {
    check(MPI_Irecv(static_cast<char*>(data) + at, count, MPI_BYTE, from, tag, MPI_COMM_WORLD, request), "receive");
  });
}

bool Transfer::test() {
  if (!requests_) return true;
  for (MPI_Request& request : requests_->chunks) {
    if (request == MPI_REQUEST_NULL) continue;
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "message");
    if (!done) return false;
  }
  requests_.reset();
  return true;
}

void set_chunk_bytes(std::size_t bytes) {
  ensure(bytes > 0, "chunks have bytes");
  chunk_bytes = bytes;
}

}  // namespace ringtrain::mpi
