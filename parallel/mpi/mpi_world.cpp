#include "parallel/mpi/mpi_world.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string_view>
#include <type_traits>

#include "framework/standard_streams.h"
#include "parallel/check_exchange.h"
#include "parallel/waited.h"

namespace ringtrain {

namespace {

// How often the watchdog polls while messages are in transit: soon after one is posted, because the other side usually
// posts at the same time, and then at increasing intervals. A spinning watchdog takes half of a core from ranks that
// compute: with 2 ranks on 2 cores, a step of configs/long_ctx.yaml took 0.56 s instead of 0.27 s.
constexpr double first_pause = 50e-6, longest_pause = 1e-3, pause_growth = 1.5;
constexpr int idle_rounds = 20;  // without pending messages, before it sleeps
constexpr double idle_pause = 1;

// The tags below this are for headers: one for each context. The others are for data: equally many for each context.
constexpr int most_contexts = 1 << 14;  // half of the tags that every MPI has

constexpr std::chrono::milliseconds report_time{1000};     // for the other ranks' last calls
constexpr std::chrono::milliseconds lingering_time{2500};  // for a lower rank to print the error and end
constexpr std::chrono::milliseconds unwinding_time{3000};  // for the process to end by itself
constexpr unsigned leaving_seconds = 5;  // for MPI and the process to end, after all ranks have said goodbye

/// Intervals between a waiting rank's checks: none at first, then increasing.
class Pause {
 public:
  void take() {
    if (++rounds_ <= 50) {
      ::sched_yield();
      return;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_));
    seconds_ = std::min(seconds_ * 1.2, 200e-6);
  }

 private:
  int rounds_ = 0;
  double seconds_ = 10e-6;
};

// The code and the message with which the process ends if MPI does not let it end. Global, because a signal handler
// uses them, and because they outlive every object: a library may hang after the program's last line.
int late_code = 0;
char late_sentence[256] = {};

void end_late(int) {
  pollfd out{STDERR_FILENO, POLLOUT, 0};  // there may be no reader any more
  if (::poll(&out, 1, 0) == 1) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, late_sentence, std::strlen(late_sentence));
  }
  ::_exit(late_code);
}

/// Ends the process with this code unless it ends by itself within leaving_seconds. Uses an alarm, not a thread, so it
/// works until the very end, including exit handlers of libraries.
void bound_the_end(int exit_code, const std::string& sentence) {
  late_code = exit_code;
  std::snprintf(late_sentence, sizeof late_sentence, "%s\n", sentence.c_str());
  struct sigaction action {};
  action.sa_handler = end_late;
  sigset_t only_alarm;
  ::sigemptyset(&only_alarm);
  ::sigaddset(&only_alarm, SIGALRM);
  if (::sigaction(SIGALRM, &action, nullptr) == 0 && ::pthread_sigmask(SIG_UNBLOCK, &only_alarm, nullptr) == 0) {
    ::alarm(leaving_seconds);
  }
  std::fflush(nullptr);
}

}  // namespace

MpiWorld::MpiWorld()
    : sockets_(session_),
      peers_(static_cast<std::size_t>(session_.size())),
      watchdog_thread_(
          start_thread(ExitCode::rank, fmt::format("the watchdog of {}", name(rank())), [this] { watchdog(); })) {}

MpiWorld::~MpiWorld() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
    if (failure_) {
      bound_the_end(static_cast<int>(failure_->code),
                    fmt::format("{} has not ended {} s after its error", name(rank()), leaving_seconds));
    }
  }
  sockets_.wake();
  watchdog_thread_.join();
}

void MpiWorld::set_timeout(double seconds) {
  const Lock lock(mutex_);
  timeout_seconds_ = seconds;
}

// --- The watchdog.

void MpiWorld::watchdog() {
  Lock lock(mutex_);
  for (int idle = 0; !stopping_;) {
    if (!failure_ && !frozen_ && !rank_waits_) {
      try {
        progress_all();
      } catch (const Error& error) {
        fail_with(error.code(), error.what());
      }
    }
    if (failure_ && Clock::now() > failure_->when + unwinding_time) {  // the rank continues to compute
      write_message(stderr, fmt::format("{} ended before its work was done: {}\n", name(rank()), failure_->sentence));
      ::_exit(static_cast<int>(failure_->code));
    }
    idle = pending_.empty() || failure_ || frozen_ ? idle + 1 : 0;
    poll_pause_ = idle > idle_rounds ? idle_pause : std::min(poll_pause_ * pause_growth, longest_pause);
    const double pause = poll_pause_;
    lock.unlock();
    const std::vector<RankMessage> messages = sockets_.receive(pause);
    lock.lock();
    for (const RankMessage& message : messages) take(message);
  }
}

void MpiWorld::take(const RankMessage& message) {
  PeerState& peer = peers_[message.rank];
  switch (message.kind) {
    case RankMessage::Kind::failure:
      peer.heard = true;
      peer.calls = message.calls;
      fail_with(message.code, message.sentence);
      break;
    case RankMessage::Kind::goodbye:
      peer.goodbye = true;
      break;
    case RankMessage::Kind::reported:
      reported_ = true;
      break;
    case RankMessage::Kind::lost:
      peer.gone = true;
      if (!peer.heard && !peer.goodbye) {
        fail_with(ExitCode::rank, fmt::format("{} ({}) has ended without a message: killed, or crashed",
                                              name(message.rank), sockets_.name(message.rank)));
      }
      break;
  }
  heard_from_ranks_.notify_all();
}

// --- The first error.

void MpiWorld::fail_with(ExitCode code, const std::string& sentence) {
  if (failure_) return;
  failure_ = {code, sentence, Clock::now(), history_.text("    ")};
  sockets_.send({RankMessage::Kind::failure, rank(), code, sentence, failure_->calls});
}

void MpiWorld::throw_if_failed() {
  if (failure_) throw Error(failure_->code, failure_->sentence);
  if (frozen_) {
    fail(ExitCode::internal, "internal error: {} makes a call after an unfinished exchange, or after its end",
         name(rank()));
  }
}

void MpiWorld::abort(const Error& error) {
  const Lock lock(mutex_);
  fail_with(error.code(), fmt::format("{} ({}): {}", name(rank()), sockets_.name(rank()), error.what()));
}

void MpiWorld::throw_if_aborted() {
  const Lock lock(mutex_);
  if (failure_) throw Error(failure_->code, failure_->sentence);
}

ErrorReport MpiWorld::report(const Error& error) {
  abort(error);
  Lock lock(mutex_);
  const std::string calls = calls_of_all(lock);
  return {is_reporter(lock), failure_->code, failure_->sentence, calls};
}

std::string MpiWorld::calls_of_all(Lock& lock) {
  const auto all_heard = [&] {
    for (int other = 0; other < size(); ++other) {
      const PeerState& peer = peers_[other];
      if (other != rank() && !peer.heard && !peer.gone) return false;
    }
    return true;
  };
  heard_from_ranks_.wait_until(lock, failure_->when + report_time, all_heard);
  std::string text;
  for (int other = 0; other < size(); ++other) {
    const PeerState& peer = peers_[other];
    text += fmt::format("  {} ({})", name(other), sockets_.name(other));
    if (other == rank()) {
      text += ":\n" + failure_->calls;
    } else if (peer.heard) {
      text += ":\n" + peer.calls;
    } else {
      text +=
          peer.gone ? ": has ended without a message\n" : ": does not answer; stopped, or its host cannot be reached\n";
    }
  }
  return text;
}

bool MpiWorld::is_reporter(Lock& lock) {
  if (reported_) return false;
  const auto lower_end = peers_.begin() + rank();
  if (std::none_of(peers_.begin(), lower_end, [](const PeerState& peer) { return peer.heard; })) {
    sockets_.send({RankMessage::Kind::reported, rank(), ExitCode::rank, "", ""});
    return true;
  }
  heard_from_ranks_.wait_until(lock, failure_->when + lingering_time, [&] {
    return std::none_of(peers_.begin(), lower_end, [](const PeerState& peer) { return peer.heard && !peer.gone; });
  });
  return false;
}

void MpiWorld::finish(int exit_code) {
  Lock lock(mutex_);
  throw_if_failed();
  ensure(pending_.empty(), "a program ends with nothing under way");
  sockets_.send({RankMessage::Kind::goodbye, rank(), ExitCode::done, "", ""});
  const auto missing = [&] {
    std::vector<int> ranks;
    for (int other = 0; other < size(); ++other) {
      if (other != rank() && !peers_[other].goodbye) ranks.push_back(other);
    }
    return ranks;
  };
  Waited waited;
  while (!missing().empty()) {
    throw_if_failed();
    if (waited.seconds() > timeout_seconds_) {
      fail_with(ExitCode::rank, timeout_text(name(rank()), timeout_seconds_,
                                             fmt::format("at the end for rank {}", fmt::join(missing(), ", "))));
    }
    heard_from_ranks_.wait_for(lock, std::chrono::milliseconds(200));
  }
  frozen_ = true;
  lock.unlock();
  bound_the_end(exit_code, fmt::format("{}: all ranks are done (code {}), but MPI has not let this process end for {} "
                                       "s, so it ends without MPI; mpirun may report that as an error",
                                       name(rank()), exit_code, leaving_seconds));
  session_.finish();
}

// --- Messages.

template <class Action>
void MpiWorld::guarded(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    fail_with(error.code(), error.what());
    throw_if_failed();
  }
}

Request MpiWorld::exchange(const ConstTensorView& send, const TensorView& receive, const Peers& peers,
                           const CallSite& site, const void* owner) {
  const Lock lock(mutex_);
  throw_if_failed();
  const Request request{++requests_};
  Exchange& exchange = pending_[request.id];
  Half &outbound = exchange.send, &inbound = exchange.receive;
  exchange.site = site;
  exchange.owner = owner;
  exchange.call = history_.started(site, peers.to, send.bytes(), peers.from, receive.bytes());
  guarded([&] {
    // The send comes first, so that its announcement reaches the peer before the permission to send that answers the
    // peer's own. Over TCP, a process that has the permission puts all its data into the connection. Its answer to an
    // announcement that it reads after that would come after the data, so the two directions would move one after the
    // other.
    if (const int to = peers.to; to != no_peer) {
      const int tag = begin(outbound, send.bytes(), to, peers.context, site);
      outbound.header_transfer = mpi::Transfer::send(&outbound.header, sizeof(Header), to, peers.context);
      if (send.bytes() > 0) outbound.data_transfer = mpi::Transfer::send(send.data, send.bytes(), to, tag);
    }
    if (const int from = peers.from; from != no_peer) {
      const int tag = begin(inbound, receive.bytes(), from, peers.context, site);
      inbound.header_transfer = mpi::Transfer::receive(&inbound.received, sizeof(Header), from, peers.context);
      if (receive.bytes() > 0) inbound.data_transfer = mpi::Transfer::receive(receive.data, receive.bytes(), from, tag);
    }
  });
  if (poll_pause_ > 4 * first_pause) sockets_.wake();
  poll_pause_ = first_pause;
  return request;
}

int MpiWorld::begin(Half& half, std::uint64_t bytes, int peer, int context, const CallSite& site) {
  half.done = half.header_done = false;
  half.peer = peer;
  half.header.bytes = bytes;
  half.header.layer = site.layer;
  half.header.hop = site.hop;
  std::strncpy(half.header.operation, site.operation, sizeof half.header.operation - 1);
  // Messages of one context keep their order, and so do those that share a tag.
  static_assert(std::has_unique_object_representations_v<Header>);
  const std::uint64_t hash =
      std::hash<std::string_view>{}({reinterpret_cast<const char*>(&half.header), sizeof(Header)});
  const std::int64_t data_tags = (std::int64_t{session_.max_tag()} + 1) / most_contexts - 1;  // of a context
  return static_cast<int>(most_contexts + context * data_tags + static_cast<std::int64_t>(hash >> 32) % data_tags);
}

void MpiWorld::progress(Half& half, bool sends) {
  if (half.done) return;
  if (!half.header_done) {
    if (!half.header_transfer.test()) return;
    half.header_done = true;
    const CallSite theirs = half.received.site(), ours = half.header.site();
    if (!sends && (half.received.bytes != half.header.bytes || !same_site(theirs, ours))) {
      fail(ExitCode::rank, "rank {} sends {} bytes ({}) to rank {}, which expects {} bytes ({})", half.peer,
           half.received.bytes, described(theirs), rank(), half.header.bytes, described(ours));
    }
  }
  half.done = half.data_transfer.test();
}

void MpiWorld::progress_all() {
  for (auto& [id, exchange] : pending_) {
    progress(exchange.receive, /*sends=*/false);
    progress(exchange.send, /*sends=*/true);
  }
}

template <class Ready, class Describe>
void MpiWorld::await(Lock& lock, const Ready& ready, const Describe& describe) {
  Pause pause;
  Waited waited;
  while (true) {
    throw_if_failed();
    bool done = false;
    guarded([&] {
      progress_all();  // also messages for which others wait while this rank waits
      done = ready();
    });
    if (done) return;
    if (waited.seconds() > timeout_seconds_) {
      fail_with(ExitCode::rank, timeout_text(name(rank()), timeout_seconds_, "in " + describe()));
      throw_if_failed();
    }
    rank_waits_ = true;
    lock.unlock();
    pause.take();
    lock.lock();
    rank_waits_ = false;
  }
}

void MpiWorld::wait(Request request, const CallerLine& line) {
  if (request.id == 0) return;
  Lock lock(mutex_);
  throw_if_failed();
  const auto found = pending_.find(request.id);
  check_waited(found != pending_.end(), line);
  Exchange& exchange = found->second;
  history_.waits_for(exchange.call, exchange.site);
  await(
      lock, [&] { return exchange.done(); },
      [&] { return unfinished(exchange.site, exchange.send.side(), exchange.receive.side()); });
  history_.finished(exchange.call);
  pending_.erase(request.id);
}

/// Every rank sends every other a message without bytes: no rank leaves before all have arrived, and each knows which
/// have not.
void MpiWorld::barrier(const std::vector<int>& members, int context, const CallSite& site, const void* owner) {
  std::vector<Request> requests;
  for (const int other : members) {
    if (other == rank()) continue;
    const TensorView nothing{nullptr, {0}, DType::uint8, {}};
    requests.push_back(exchange(nothing, nothing, {context, other, other}, site, owner));
  }
  Lock lock(mutex_);
  const auto exchange_of = [&](Request request) -> Exchange& { return pending_.at(request.id); };
  const std::uint64_t call = history_.started(site);
  history_.waits_for(call, site);
  await(
      lock, [&] { return std::ranges::all_of(requests, [&](Request request) { return exchange_of(request).done(); }); },
      [&] {
        std::vector<int> missing;
        for (const Request request : requests) {
          const Half& receive = exchange_of(request).receive;
          if (!receive.done) missing.push_back(receive.peer);
        }
        return fmt::format("{}: waiting for rank {}", described(site), fmt::join(missing, ", "));
      });
  history_.finished(call);
  for (const Request request : requests) {
    history_.finished(exchange_of(request).call);
    pending_.erase(request.id);
  }
}

void MpiWorld::use_contexts(int begin) {
  ensure(begin >= next_context_ && begin < most_contexts, "a program makes fewer communicators than there are tags");
  next_context_ = begin;
}

void MpiWorld::forget(const void* owner) {
  const Lock lock(mutex_);
  frozen_ = frozen_ || std::ranges::any_of(pending_, [&](const auto& entry) { return entry.second.owner == owner; });
}

}  // namespace ringtrain
