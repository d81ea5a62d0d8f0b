#include "parallel/threads/thread_communicator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "framework/copy_stream.h"
#include "parallel/call_history.h"
#include "parallel/check_exchange.h"
#include "parallel/collectives.h"
#include "parallel/waited.h"

namespace ringtrain {

namespace {

/// One side of a message: a send or a receive that some rank has posted.
struct Half {
  bool done = true, sends = false;
  int rank = 0, peer = 0;  // of the group
  ConstTensorView buffer;
  TensorView target;  // of a receive: its buffer, to be written
  CallSite site;
  // For a message between GPUs: after the work that its rank's stream had when it was posted, and after the copy.
  CopyStream::Event posted, copied;
};

struct Exchange {
  Half send, receive;
  std::uint64_t call = 0;  // in the rank's history
  bool done() const { return send.done && receive.done; }
};

/// The state that all ranks share: one lock for everything small, and the first error. Each rank waits on its own
/// condition, so that a message wakes only the rank for which it is.
struct World {
  World(int size, double timeout) : timeout_seconds(timeout), ranks(static_cast<std::size_t>(size)) {}

  struct Rank {
    std::condition_variable wake;
    int copying = 0;  // halves of this rank whose buffers a thread is currently reading or writing
    CallHistory history;
  };

  void fail_with(ExitCode error_code, std::string error_sentence) {
    if (!failed) {
      failed = true;
      code = error_code;
      sentence = std::move(error_sentence);
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        calls += fmt::format("  {}:\n{}", rank_name(rank, ranks.size()), ranks[rank].history.text("    "));
      }
    }
    for (Rank& rank : ranks) rank.wake.notify_all();
  }

  const double timeout_seconds;
  std::mutex mutex;
  std::vector<Rank> ranks;
  bool failed = false;  // the first error, kept as text: every rank throws its own Error
  ExitCode code = ExitCode::rank;
  std::string sentence;
  std::string calls;  // the last calls of each rank at that time
};

/// The state that the ranks of one communicator share; guarded by the world's mutex.
struct Group {
  Group(std::shared_ptr<World> shared_world, std::vector<int> world_ranks)
      : world(std::move(shared_world)), members(std::move(world_ranks)), barriers(members.size()) {}

  int size() const { return static_cast<int>(members.size()); }
  int world_rank(int rank) const { return rank == no_peer ? no_peer : members[rank]; }
  World::Rank& state(int rank) const { return world->ranks[world_rank(rank)]; }
  /// Halves of one message stream that wait for their other side: all sends or all receives, in order.
  std::deque<Half*>& mailbox(const Half& half) {
    return mailboxes[half.sends ? std::pair(half.rank, half.peer) : std::pair(half.peer, half.rank)];
  }

  const std::shared_ptr<World> world;
  const std::vector<int> members;                              // world rank of each
  std::map<std::pair<int, int>, std::deque<Half*>> mailboxes;  // by sender and receiver
  std::vector<std::uint64_t> barriers;                         // how many each rank has entered

  struct Part {
    std::shared_ptr<Group> group;
    std::size_t taken = 0;  // by how many of its ranks
  };
  std::map<std::pair<std::uint64_t, int>, Part> parts;  // by the number of earlier splits, and the color
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), world_(*group_->world), self_(group_->state(rank)), rank_(rank) {}
  ~ThreadCommunicator() override {
    Lock lock(world_.mutex);
    for (auto& [id, exchange] : pending_) {
      for (Half* half : {&exchange.send, &exchange.receive}) {
        if (!half->done) std::erase(group_->mailbox(*half), half);
      }
    }
    self_.wake.wait(lock, [&] { return self_.copying == 0; });
  }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  Request exchange(const ConstTensorView& send, int to, const TensorView& receive, int from, const CallSite& site,
                   const CallerLine& line) override {
    if (to == no_peer && from == no_peer) return {};
    check_exchange(send, to, receive, from, size(), on_gpu(), line);
    Lock lock(world_.mutex);
    const Request request{++requests_};
    Exchange& exchange = pending_[request.id];
    exchange.call =
        self_.history.started(site, group_->world_rank(to), send.bytes(), group_->world_rank(from), receive.bytes());
    exchange.send.sends = true;
    exchange.send.buffer = send;
    exchange.receive.buffer = exchange.receive.target = receive;
    exchange.send.site = exchange.receive.site = site;
    if (to != no_peer) post(lock, exchange.send, to);
    if (from != no_peer) post(lock, exchange.receive, from);
    return request;
  }

  void set_stream(Stream& stream) override { device_.set_stream(stream); }
  void wait(Request request, const CallerLine& line) override {
    if (request.id == 0) return;
    Lock lock(world_.mutex);
    const auto found = pending_.find(request.id);
    check_waited(found != pending_.end(), line);
    const Exchange& exchange = found->second;
    self_.history.waits_for(exchange.call, exchange.send.site);
    await(
        lock, [&] { return exchange.done(); },
        [&] { return unfinished(exchange.send.site, side(exchange.send), side(exchange.receive)); });
    self_.history.finished(exchange.call);
    for (const Half* half : {&exchange.send, &exchange.receive}) {
      if (half->copied) device_.wait(half->copied);
    }
    pending_.erase(found);
  }

  void barrier(const CallSite& site) override {
    Lock lock(world_.mutex);
    throw_if_failed(lock);
    const std::uint64_t mine = ++group_->barriers[rank_];
    const auto all_entered = [&] { return std::ranges::min(group_->barriers) >= mine; };
    const auto missing = [&] {
      std::vector<int> ranks;
      for (int rank = 0; rank < size(); ++rank) {
        if (group_->barriers[rank] < mine) ranks.push_back(group_->world_rank(rank));
      }
      return ranks;
    };
    const std::uint64_t call = self_.history.started(site);
    self_.history.waits_for(call, site);
    if (all_entered()) {
      for (int rank = 0; rank < size(); ++rank) group_->state(rank).wake.notify_all();
    }
    await(lock, all_entered,
          [&] { return fmt::format("{}: waiting for rank {}", described(site), fmt::join(missing(), ", ")); });
    self_.history.finished(call);
  }

  std::unique_ptr<Communicator> split(int color) override {
    const std::array<std::int64_t, 1> own_color{color};
    const std::vector<std::int64_t> colors = ringtrain::all_gather(*this, own_color, {"split"});
    std::vector<int> members;
    for (int rank = 0; rank < size(); ++rank) {
      if (colors[rank] == color) members.push_back(group_->world_rank(rank));
    }
    const auto index = std::ranges::find(members, group_->world_rank(rank_)) - members.begin();
    Lock lock(world_.mutex);
    const std::pair key(splits_++, color);
    Group::Part& part = group_->parts[key];
    if (!part.group) part.group = std::make_shared<Group>(group_->world, members);
    auto communicator = std::make_unique<ThreadCommunicator>(part.group, static_cast<int>(index));
    if (++part.taken == members.size()) group_->parts.erase(key);
    lock.unlock();
    if (device_.stream() != nullptr) communicator->set_stream(*device_.stream());
    return communicator;
  }

  void abort(const Error& error) override {
    Lock lock(world_.mutex);
    world_.fail_with(error.code(), error.what());
    self_.wake.wait(lock, [&] { return self_.copying == 0; });
  }

  void throw_if_aborted() override {
    Lock lock(world_.mutex);
    throw_if_failed(lock);
  }

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// half: with its direction, buffer, and site.
  void post(Lock& lock, Half& half, int peer) {
    throw_if_failed(lock);
    half.done = false;
    half.rank = rank_;
    half.peer = peer;
    if (!half.buffer.device.is_cpu()) half.posted = device_.record();
    std::deque<Half*>& mailbox = group_->mailbox(half);
    if (mailbox.empty() || mailbox.front()->sends == half.sends) {
      mailbox.push_back(&half);
      return;
    }
    Half& other = *mailbox.front();
    mailbox.pop_front();
    meet(lock, half, other);
  }

  /// Both sides of a message have arrived: copies it.
  void meet(Lock& lock, Half& half, Half& other) {
    Half &send = half.sends ? half : other, &receive = half.sends ? other : half;
    check_disagreement(lock, send, receive);
    World::Rank& peer = group_->state(other.rank);
    ++self_.copying;
    ++peer.copying;
    lock.unlock();
    std::optional<Error> failure;
    try {
      if (const std::size_t bytes = send.buffer.bytes(); send.buffer.device.is_cpu()) {
        if (bytes > 0) std::memcpy(receive.target.data, send.buffer.data, bytes);
      } else {
        send.copied = receive.copied = device_.copy(receive.target, send.buffer, send.posted, receive.posted,
                                                    {half.site.operation, half.site.layer, half.site.hop});
      }
    } catch (const Error& error) {
      failure = error;
    }
    lock.lock();
    --self_.copying;
    --peer.copying;
    half.done = other.done = true;
    peer.wake.notify_all();
    if (failure) {
      world_.fail_with(failure->code(), failure->what());
      throw_failure(lock);
    }
  }

  void check_disagreement(Lock& lock, const Half& send, const Half& receive) {
    ensure(send.buffer.device.is_cpu() == receive.buffer.device.is_cpu(),
           "both sides of a message have memory of a kind");
    if (send.buffer.bytes() == receive.buffer.bytes() && same_site(send.site, receive.site)) return;
    world_.fail_with(ExitCode::rank,
                     fmt::format("rank {} sends {} bytes ({}) to rank {}, which expects {} bytes ({})",
                                 group_->world_rank(send.rank), send.buffer.bytes(), described(send.site),
                                 group_->world_rank(receive.rank), receive.buffer.bytes(), described(receive.site)));
    throw_failure(lock);
  }

  /// Returns once ready() is true. Throws the first error of any rank; Error(rank) with describe() after the timeout.
  template <class Ready, class Describe>
  void await(Lock& lock, const Ready& ready, const Describe& describe) {
    Waited waited;
    while (true) {
      throw_if_failed(lock);
      if (ready()) return;
      if (waited.seconds() <= world_.timeout_seconds) {
        self_.wake.wait_for(lock, std::chrono::milliseconds(200));
      } else if (self_.copying > 0) {
        self_.wake.wait(lock);  // a pending copy ends by itself
      } else {
        world_.fail_with(ExitCode::rank, timeout_text(name(), world_.timeout_seconds, "in " + describe()));
      }
    }
  }

  void throw_if_failed(Lock& lock) {
    if (world_.failed) throw_failure(lock);
  }

  [[noreturn]] void throw_failure(Lock& lock) {
    self_.wake.wait(lock, [&] { return self_.copying == 0; });
    throw Error(world_.code, world_.sentence);
  }

  std::string name() const { return rank_name(group_->world_rank(rank_), world_.ranks.size()); }
  ExchangeSide side(const Half& half) const { return {half.done, group_->world_rank(half.peer), half.buffer.bytes()}; }

  bool on_gpu() const { return device_.stream() != nullptr && device_.stream()->on_cuda(); }

  const std::shared_ptr<Group> group_;
  World& world_;
  World::Rank& self_;
  const int rank_;
  CopyStream device_;  // of messages between GPUs
  std::uint64_t requests_ = 0, splits_ = 0;
  std::unordered_map<std::uint64_t, Exchange> pending_;  // mailboxes point into it: its elements do not move
};

}  // namespace

ThreadWorld make_thread_world(int ranks, double timeout_seconds) {
  ensure(ranks >= 1 && timeout_seconds > 0, "a world has ranks and a timeout");
  std::vector<int> members(ranks);
  for (int rank = 0; rank < ranks; ++rank) members[rank] = rank;
  const auto shared = std::make_shared<World>(ranks, timeout_seconds);
  const auto group = std::make_shared<Group>(shared, members);
  ThreadWorld world;
  for (int rank = 0; rank < ranks; ++rank) world.ranks.push_back(std::make_unique<ThreadCommunicator>(group, rank));
  world.calls = [shared] {
    const std::lock_guard lock(shared->mutex);
    return shared->calls;
  };
  return world;
}

}  // namespace ringtrain
