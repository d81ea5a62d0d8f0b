// Frames over sockets.
#include "nccl/nccl_sockets.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

namespace cuda_emulator::nccl {

namespace {

struct Address {
  sockaddr_un value{};
  socklen_t length = 0;
};

/// A name of the abstract namespace begins with a zero.
Address address_of(std::uint64_t unique_id, int rank) {
  Address address;
  const std::string name = fmt::format("cuda_emulator.nccl.{:016x}.{}", unique_id, rank);
  address.value.sun_family = AF_UNIX;
  std::memcpy(address.value.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

/// Returns a socket for which use(socket, address) returns 0, or -1.
template <class Use>
int socket_for(std::uint64_t unique_id, int rank, const Use& use) {
  const int made = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const Address address = address_of(unique_id, rank);
  if (made < 0 || use(made, reinterpret_cast<const sockaddr*>(&address.value), address.length) == 0) return made;
  ::close(made);
  return -1;
}

}  // namespace

int listen_as(std::uint64_t unique_id, int rank) {
  return socket_for(unique_id, rank, [](int socket, const sockaddr* address, socklen_t length) {
    const int bound = ::bind(socket, address, length);
    return bound == 0 ? ::listen(socket, SOMAXCONN) : bound;
  });
}

int connect_to(std::uint64_t unique_id, int rank) {
  return socket_for(unique_id, rank, ::connect);
}

int accept_at(int listener) {
  return ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

Connection::~Connection() {
  if (socket_ >= 0) ::close(socket_);
}

Connection::Connection(Connection&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      kept_(std::move(other.kept_)),
      come_(std::move(other.come_)),
      closed_(other.closed_) {}

void Connection::send(const Frame& frame, const void* data) {
  kept_.append(reinterpret_cast<const char*>(&frame), sizeof frame);
  if (data != nullptr) kept_.append(static_cast<const char*>(data), frame.bytes);
  flush();
}

void Connection::flush() {
  std::size_t written = 0;
  while (written < kept_.size()) {
    const ssize_t n = ::send(socket_, kept_.data() + written, kept_.size() - written, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) written = kept_.size();  // there is no reader, as receive() will also find
    if (n <= 0) break;
    written += static_cast<std::size_t>(n);
  }
  kept_.erase(0, written);
}

bool Connection::receive(Received& received) {
  std::array<char, 1 << 16> piece;
  while (!closed_) {
    const ssize_t n = ::recv(socket_, piece.data(), piece.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    closed_ = n <= 0;
    if (n > 0) come_.append(piece.data(), static_cast<std::size_t>(n));
  }
  if (come_.size() < sizeof received.frame) return false;
  std::memcpy(&received.frame, come_.data(), sizeof received.frame);
  const std::size_t data = received.frame.kind == Frame::Kind::data ? received.frame.bytes : 0;
  if (come_.size() < sizeof received.frame + data) return false;
  received.data = come_.substr(sizeof received.frame, data);
  come_.erase(0, sizeof received.frame + data);
  return true;
}

}  // namespace cuda_emulator::nccl
