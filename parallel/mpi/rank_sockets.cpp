#include "parallel/mpi/rank_sockets.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>

namespace ringtrain {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::seconds;

constexpr Seconds connect_time{3};          // for an address that does not answer
constexpr Seconds greeting_time{20};        // for a rank that connects to others before it answers
constexpr std::uint32_t longest = 1 << 20;  // of a text; longer ones are not our messages
constexpr std::size_t header_bytes = 4 * sizeof(std::uint32_t);

struct Greeting {
  std::uint64_t secret;
  std::int32_t rank, receiver;
};

bool wait_for(int socket, short event, Clock::time_point deadline) {
  pollfd entry{socket, event, 0};
  int ready = 0;
  do {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    ready = ::poll(&entry, 1, std::max(0, static_cast<int>(left.count())));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

/// Calls move(bytes moved so far) whenever the socket is ready for the event, until all bytes are moved. Returns false
/// if this takes longer than the deadline, or the socket has closed.
template <class Move>
bool move_all(int socket, short event, std::size_t bytes, Clock::time_point deadline, const Move& move) {
  for (std::size_t moved = 0; moved < bytes;) {
    if (!wait_for(socket, event, deadline)) return false;
    const ssize_t n = move(moved);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) return false;
    if (n > 0) moved += static_cast<std::size_t>(n);
  }
  return true;
}

bool read_all(int socket, void* data, std::size_t bytes, Clock::time_point deadline) {
  return move_all(socket, POLLIN, bytes, deadline,
                  [&](std::size_t at) { return ::recv(socket, static_cast<char*>(data) + at, bytes - at, 0); });
}

/// Sends small amounts of data: gives up on a socket that does not accept them for a second.
bool write_all(int socket, const void* data, std::size_t bytes) {
  return move_all(socket, POLLOUT, bytes, Clock::now() + Seconds(1), [&](std::size_t at) {
    return ::send(socket, static_cast<const char*>(data) + at, bytes - at, MSG_NOSIGNAL);
  });
}

std::array<std::uint32_t, 16> own_addresses() {
  std::array<std::uint32_t, 16> found{};
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  std::size_t count = 0;
  for (const bool loopback : {false, true}) {  // other addresses first: they identify this host better
    for (const ifaddrs* at = list; at && count < found.size(); at = at->ifa_next) {
      if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET) continue;
      const std::uint32_t address = reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr.s_addr;
      if ((ntohl(address) >> 24 == 127) == loopback) found[count++] = address;
    }
  }
  ::freeifaddrs(list);
  return found;
}

sockaddr_in socket_address(std::uint32_t address, std::uint16_t port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = port;
  result.sin_addr.s_addr = address;
  return result;
}

}  // namespace

/// A rank's listening address. Plain bytes, gathered from all ranks.
struct RankSockets::Address {
  std::array<char, 256> host;               // a name, then at least one zero
  std::array<std::uint32_t, 16> addresses;  // network order; 0: none
  std::uint16_t port;
  std::int32_t process;
  std::uint64_t secret;  // that of rank 0 is used
};

RankSockets::Descriptor::~Descriptor() {
  if (value_ >= 0) ::close(value_);
}

RankSockets::RankSockets(const mpi::Session& session)
    : rank_(session.rank()),
      peers_(static_cast<std::size_t>(session.size())),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  const int rank = rank_, ranks = session.size();
  if (wake_ < 0) fail(ExitCode::rank, "rank {}: no event descriptor: {}", rank, std::strerror(errno));
  const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any = socket_address(htonl(INADDR_ANY), 0);
  socklen_t length = sizeof any;
  if (listener < 0 || ::bind(listener, reinterpret_cast<sockaddr*>(&any), sizeof any) != 0 ||
      ::listen(listener, ranks + 16) != 0 || ::getsockname(listener, reinterpret_cast<sockaddr*>(&any), &length) != 0) {
    fail(ExitCode::rank, "rank {}: cannot listen for the other ranks: {}", rank, std::strerror(errno));
  }
  Address own_address{};
  ::gethostname(own_address.host.data(), own_address.host.size() - 1);
  own_address.addresses = own_addresses();
  own_address.port = any.sin_port;
  own_address.process = ::getpid();
  std::random_device random;
  own_address.secret = (std::uint64_t{random()} << 32) | random();
  std::vector<Address> all(peers_.size());
  session.all_gather(&own_address, all.data(), sizeof own_address);

  secret_ = all[0].secret;
  for (int other = 0; other < ranks; ++other) {
    const Address& address = all[other];
    names_.push_back(fmt::format("process {} on host {}", address.process, address.host.data()));
    if (address.host == own_address.host) here_.push_back(other);
  }
  for (int other = 0; other < rank; ++other) connect_to(other, all[other]);
  accept_from_higher(listener);
}

void RankSockets::connect_to(int rank, const Address& target) {
  std::string tried;
  for (const std::uint32_t host : target.addresses) {
    if (host == 0) break;
    const sockaddr_in to = socket_address(host, target.port);
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int error = 0;
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) error = errno;
    if (error == EINPROGRESS) {
      socklen_t length = sizeof error;
      error = ETIMEDOUT;
      if (wait_for(socket, POLLOUT, Clock::now() + connect_time))
        ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
    }
    // The other side answers with the same greeting; the port of another program does not.
    const Greeting greeting{secret_, rank_, rank};
    Greeting answer{};
    if (error == 0 && write_all(socket, &greeting, sizeof greeting) &&
        read_all(socket, &answer, sizeof answer, Clock::now() + greeting_time) && answer.secret == secret_ &&
        answer.rank == rank) {
      peers_[rank].socket.take(socket);
      return;
    }
    std::array<char, INET_ADDRSTRLEN> text{};
    ::inet_ntop(AF_INET, &to.sin_addr, text.data(), text.size());
    tried += fmt::format("{}{}:{} ({})", tried.empty() ? "" : ", ", text.data(), ntohs(target.port),
                         error ? std::strerror(error) : "no answer from a rank");
  }
  fail(ExitCode::rank, "rank {} cannot reach rank {} ({}); tried {}; is there a firewall?", rank_, rank, name(rank),
       tried.empty() ? "no address: that host has none" : tried);
}

void RankSockets::accept_from_higher(int listener) {
  auto missing = static_cast<int>(peers_.size()) - rank_ - 1;
  const auto deadline = Clock::now() + Seconds(60) + missing * greeting_time;
  while (missing > 0) {
    if (!wait_for(listener, POLLIN, deadline)) {
      fail(ExitCode::rank, "rank {} ({}): {} of the higher ranks have not connected to it", rank_, name(rank_),
           missing);
    }
    Descriptor socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    Greeting greeting{};
    if (socket < 0 || !read_all(socket, &greeting, sizeof greeting, Clock::now() + Seconds(5)) ||
        greeting.secret != secret_ || greeting.rank <= rank_ || greeting.rank >= std::ssize(peers_) ||
        greeting.receiver != rank_) {
      continue;  // another program, or a rank that means another one: different hosts may have the same local address
    }
    const Greeting answer{secret_, rank_, greeting.rank};
    if (!write_all(socket, &answer, sizeof answer)) continue;
    if (peers_[greeting.rank].socket >= 0) continue;
    peers_[greeting.rank].socket.take(socket);
    --missing;
  }
}

void RankSockets::send(const RankMessage& message) {
  // Kind, code, the lengths of both texts, the texts. All hosts must have the same byte order.
  const std::array<std::uint32_t, 4> header{
      static_cast<std::uint32_t>(message.kind), static_cast<std::uint32_t>(message.code),
      static_cast<std::uint32_t>(message.sentence.size()), static_cast<std::uint32_t>(message.calls.size())};
  const std::string text =
      std::string(reinterpret_cast<const char*>(header.data()), sizeof header) + message.sentence + message.calls;
  for (const Peer& peer : peers_) {
    if (peer.socket >= 0) write_all(peer.socket, text.data(), text.size());
  }
}

void RankSockets::wake() {
  const std::uint64_t added = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &added, sizeof added);  // fails only if it is already awake
}

std::vector<RankMessage> RankSockets::receive(double seconds) {
  std::vector<pollfd> entries;  // by rank, then the event; poll skips a negative descriptor
  for (const Peer& peer : peers_) entries.push_back({peer.lost ? -1 : int{peer.socket}, POLLIN, 0});
  entries.push_back({wake_, POLLIN, 0});
  const auto whole = static_cast<time_t>(seconds);
  const timespec limit{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  std::vector<RankMessage> messages;
  if (::ppoll(entries.data(), entries.size(), &limit, nullptr) <= 0) return messages;
  if (entries.back().revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_, &count, sizeof count);
  }
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (entries[rank].revents != 0) read(static_cast<int>(rank), messages);
  }
  return messages;
}

void RankSockets::read(int rank, std::vector<RankMessage>& messages) {
  Peer& peer = peers_[rank];
  bool open = true;
  for (std::array<char, 4096> piece;;) {
    const ssize_t n = ::recv(peer.socket, piece.data(), piece.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    open = n > 0;
    if (!open) break;
    peer.buffer.append(piece.data(), static_cast<std::size_t>(n));
  }
  while (peer.buffer.size() >= header_bytes) {
    std::array<std::uint32_t, 4> header{};
    std::memcpy(header.data(), peer.buffer.data(), header_bytes);
    const auto [kind, code, sentence, calls] = header;
    if (sentence > longest || calls > longest) {
      open = false;
      break;
    }
    if (peer.buffer.size() < header_bytes + sentence + calls) break;
    messages.push_back({static_cast<RankMessage::Kind>(kind), rank, static_cast<ExitCode>(code),
                        peer.buffer.substr(header_bytes, sentence),
                        peer.buffer.substr(header_bytes + sentence, calls)});
    peer.buffer.erase(0, header_bytes + sentence + calls);
  }
  if (open) return;
  // The descriptor remains open until the end, because another thread may be using it to send.
  peer.lost = true;
  ::shutdown(peer.socket, SHUT_RDWR);
  messages.push_back({RankMessage::Kind::lost, rank, ExitCode::rank, "", ""});
}

}  // namespace ringtrain
