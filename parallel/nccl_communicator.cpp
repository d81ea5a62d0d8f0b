#include "parallel/nccl_communicator.h"

#include <nccl.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "framework/cuda/event.h"
#include "parallel/call_history.h"
#include "parallel/check_exchange.h"
#include "parallel/collectives.h"

namespace ringtrain {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto between_looks = std::chrono::milliseconds(20);

/// Owns one NCCL communicator, its stream and its watch.
class Nccl {
 public:
  Nccl(Communicator& host, Stream& stream, double timeout_seconds)
      : host_(host), stream_(stream), timeout_(timeout_seconds) {
    cuda::check(cudaStreamCreateWithFlags(&own_stream_, cudaStreamNonBlocking), "making a stream for NCCL");
  }
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  /// Joins ranks by an id that rank 0 of host makes.
  void join();
  /// Joins those ranks of parent that give the same colour.
  void join_part_of(Nccl& parent, int colour);

  /// Runs post(communicator, stream) behind what the rank's stream was given; all that it posts is one act. Return the
  /// ticket to follow.
  template <class Post>
  Ticket run(const CallSite& site, const Post& post);
  void begin_group();
  void end_group();
  /// What the rank's stream is given from now on runs behind the act.
  void follow(Ticket ticket);
  /// Gives up: NCCL's kernels leave the GPU.
  void abort();

 private:
  struct Act {
    CallSite site;
    cuda::Event ready, done;
    bool could_run = false;
    Clock::time_point since;  // when it was first seen that it could run
  };
  void settle(ncclResult_t result, const char* what);
  void start_watch();
  void watch();
  std::string problem();

  Communicator& host_;
  Stream& stream_;
  const double timeout_;
  cudaStream_t own_stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
  std::mutex mutex_;  // of all below, and of calls into NCCL
  std::condition_variable stop_changed_;
  bool stop_ = false, aborted_ = false;
  std::uint64_t tickets_ = 0;
  int group_depth_ = 0;
  std::map<std::uint64_t, Act> acts_;         // not followed yet
  std::deque<Act> followed_;                  // but perhaps not done: watched until they are
  std::vector<std::uint64_t> acts_of_group_;  // of the group that is open
  std::thread watch_;
};

/// A non-blocking communicator answers "in progress" while it connects; the host then looks until it has done so.
void Nccl::settle(ncclResult_t result, const char* what) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_);
  while (result == ncclInProgress) {
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
    if (asked != ncclSuccess) result = asked;
    if (result != ncclInProgress) break;
    if (Clock::now() > deadline) {
      fail(ExitCode::rank, "rank {} of {} waited {} s in {} of NCCL (mesh.timeout_seconds)", host_.rank(), host_.size(),
           timeout_, what);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  if (result != ncclSuccess) {
    fail(ExitCode::device, "rank {} of {}: {} of NCCL: {} ({})", host_.rank(), host_.size(), what,
         ncclGetErrorString(result), comm_ != nullptr ? ncclGetLastError(comm_) : "no communicator yet");
  }
}

void Nccl::join() {
  ncclUniqueId id{};
  if (host_.rank() == 0) settle(ncclGetUniqueId(&id), "making the unique id");
  broadcast(host_, host_view(reinterpret_cast<std::uint8_t*>(id.internal), {NCCL_UNIQUE_ID_BYTES}), 0,
            {"handing round NCCL's unique id"});
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  settle(ncclCommInitRankConfig(&comm_, host_.size(), id, host_.rank(), &config), "joining the ranks");
  start_watch();
}

void Nccl::join_part_of(Nccl& parent, int colour) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const std::lock_guard lock(parent.mutex_);
  parent.settle(ncclCommSplit(parent.comm_, colour, parent.host_.rank(), &comm_, &config), "splitting the ranks");
  settle(ncclInProgress, "splitting the ranks");
  start_watch();
}

void Nccl::start_watch() {
  watch_ = std::thread([this] { watch(); });
}

Nccl::~Nccl() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stop_changed_.notify_all();
  if (watch_.joinable()) watch_.join();
  if (comm_ != nullptr) {
    // Without an error all is done, or will be: finalizing waits for it. After one there is nothing to wait for.
    if (!aborted_ && acts_.empty() && ncclCommFinalize(comm_) != ncclSystemError) {
      ncclResult_t state = ncclInProgress;
      const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_);
      while (state == ncclInProgress && Clock::now() < deadline) {
        if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) break;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      if (state == ncclSuccess) {
        ncclCommDestroy(comm_);
        comm_ = nullptr;
      }
    }
    if (comm_ != nullptr) ncclCommAbort(comm_);
  }
  cuda::ignore(cudaStreamSynchronize(own_stream_));
  acts_.clear();
  followed_.clear();
  cuda::ignore(cudaStreamDestroy(own_stream_));
}

void Nccl::begin_group() {
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  if (group_depth_++ == 0) settle(ncclGroupStart(), "opening a group");
}

void Nccl::end_group() {
  const std::lock_guard lock(mutex_);
  if (aborted_ || --group_depth_ > 0) return;
  settle(ncclGroupEnd(), "posting a group");
  for (const std::uint64_t act : std::exchange(acts_of_group_, {})) acts_.at(act).done.record(own_stream_);
}

template <class Post>
Ticket Nccl::run(const CallSite& site, const Post& post) {
  begin_group();
  std::uint64_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = ++tickets_;
    Act& act = acts_[id];
    act.site = site;
    act.ready.record(stream_.cuda().stream());
    act.ready.hold_back(own_stream_);
    acts_of_group_.push_back(id);
    if (!aborted_) settle(post(comm_, own_stream_), site.operation);
  }
  end_group();
  return {id};
}

void Nccl::follow(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  const auto found = acts_.find(ticket.id);
  ensure(found != acts_.end(), "a ticket is waited on once");
  ensure(group_depth_ == 0, "a group is closed before one of its exchanges is waited for");
  found->second.done.hold_back(stream_.cuda().stream());
  followed_.push_back(std::move(found->second));
  acts_.erase(found);
}

void Nccl::abort() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(aborted_, true) || comm_ == nullptr) return;
  ncclCommAbort(std::exchange(comm_, nullptr));
}

/// Return what ends all ranks, or nothing.
std::string Nccl::problem() {
  ncclResult_t state = ncclSuccess;
  if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess || (state != ncclSuccess && state != ncclInProgress)) {
    return fmt::format("rank {} of {}: NCCL reports: {} ({})", host_.rank(), host_.size(), ncclGetErrorString(state),
                       ncclGetLastError(comm_));
  }
  while (!followed_.empty() && followed_.front().done.passed()) followed_.pop_front();
  const auto late = [&](Act& act) {
    if (!act.could_run) {
      if (!act.ready.passed()) return false;  // the GPU still computes what it sends: as long as that takes
      act.could_run = true;
      act.since = Clock::now();
    }
    return !act.done.passed() && Clock::now() - act.since > std::chrono::duration<double>(timeout_);
  };
  const auto told = [&](const Act& act) {
    return fmt::format("rank {} of {} waited {} s in {} on its GPU (mesh.timeout_seconds)", host_.rank(), host_.size(),
                       timeout_, described(act.site));
  };
  for (Act& act : followed_) {
    if (late(act)) return told(act);
  }
  if (group_depth_ > 0) return {};  // what is being posted has no end yet
  for (auto& [id, act] : acts_) {
    if (late(act)) return told(act);
  }
  return {};
}

void Nccl::watch() {
  cuda::ignore(cudaSetDevice(stream_.cuda().device()));
  std::unique_lock lock(mutex_);
  while (!stop_changed_.wait_for(lock, between_looks, [&] { return stop_; })) {
    if (aborted_) continue;
    std::string sentence;
    ExitCode code = ExitCode::rank;
    try {
      sentence = problem();
    } catch (const Error& error) {
      sentence = error.what();
      code = error.code();
    }
    if (sentence.empty()) continue;
    aborted_ = true;
    ncclCommAbort(std::exchange(comm_, nullptr));
    lock.unlock();
    host_.abort(Error(code, sentence));
    lock.lock();
  }
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, Stream& stream, double timeout_seconds)
      : host_(std::move(host)), stream_(stream), timeout_(timeout_seconds), nccl_(*host_, stream, timeout_seconds) {}

  Nccl& nccl() { return nccl_; }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  void order_with(Stream& stream) override {
    ensure(&stream == &stream_, "NCCL is ordered with the stream that it was made for");
  }

  Ticket exchange(const TensorView& send, int to, const TensorView& receive, int from, const CallSite& site) override {
    if (to == no_peer && from == no_peer) return {};
    if (on_host(send, to) && on_host(receive, from)) {
      const Ticket ticket = host_->exchange(send, to, receive, from, site);
      return {ticket.id << 1};
    }
    check_exchange(send, to, receive, from, size(), /*device_memory=*/true);
    const Ticket ticket = nccl_.run(site, [&](ncclComm_t comm, cudaStream_t stream) {
      ncclResult_t result = ncclSuccess;
      if (to != no_peer) result = ncclSend(send.data, send.bytes(), ncclUint8, to, comm, stream);
      if (from != no_peer && (result == ncclSuccess || result == ncclInProgress)) {
        result = ncclRecv(receive.data, receive.bytes(), ncclUint8, from, comm, stream);
      }
      return result;
    });
    return {ticket.id << 1 | 1};
  }
  void wait(Ticket ticket) override {
    if (ticket.id == 0) return;
    if (ticket.id & 1) {
      nccl_.follow({ticket.id >> 1});
    } else {
      host_->wait({ticket.id >> 1});
    }
  }
  void begin_group() override { nccl_.begin_group(); }
  void end_group() override { nccl_.end_group(); }
  void barrier(const CallSite& site) override { host_->barrier(site); }

  std::unique_ptr<Communicator> split(int colour) override {
    auto part = std::make_unique<NcclCommunicator>(host_->split(colour), stream_, timeout_);
    part->nccl_.join_part_of(nccl_, colour);
    return part;
  }
  void abort(const Error& error) override {
    host_->abort(error);
    nccl_.abort();
  }

 private:
  static bool on_host(const TensorView& tensor, int peer) { return peer == no_peer || tensor.device.is_cpu(); }

  const std::unique_ptr<Communicator> host_;
  Stream& stream_;
  const double timeout_;
  Nccl nccl_;
};

/// Return two ranks that share a GPU, or (-1, -1).
std::pair<int, int> sharing_ranks(Communicator& host, const Stream& stream) {
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, stream.cuda().device()), "asking for the properties of the GPU");
  std::array<std::int64_t, 2> halves{};
  static_assert(sizeof(properties.uuid) == sizeof(halves));
  std::memcpy(halves.data(), &properties.uuid, sizeof(halves));
  const std::vector<std::int64_t> all = all_gather(host, halves, {"gather of GPUs"});
  for (std::size_t a = 0; a < all.size(); a += 2) {
    for (std::size_t b = a + 2; b < all.size(); b += 2) {
      if (all[a] == all[b] && all[a + 1] == all[b + 1]) return {static_cast<int>(a / 2), static_cast<int>(b / 2)};
    }
  }
  return {-1, -1};
}

}  // namespace

bool built_with_nccl() {
  return true;
}

bool each_has_a_gpu(Communicator& host, const Stream& stream) {
  return sharing_ranks(host, stream).first < 0;
}

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host, Stream& stream,
                                                     double timeout_seconds) {
  if (const auto [a, b] = sharing_ranks(*host, stream); a >= 0) {  // NCCL before 2.30 would hang
    fail(
        ExitCode::usage,
        "mesh.backend nccl gives each rank a GPU of its own, but ranks {} and {} share one; use as many GPUs as ranks, "
        "or backend threads, whose ranks may share them",
        a, b);
  }
  auto communicator = std::make_unique<NcclCommunicator>(std::move(host), stream, timeout_seconds);
  communicator->nccl().join();
  return communicator;
}

}  // namespace ringtrain
