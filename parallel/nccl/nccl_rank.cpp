#include "parallel/nccl/nccl_rank.h"

#include <algorithm>
#include <future>
#include <utility>

#include "framework/cuda/check.h"
#include "framework/cuda/context.h"
#include "framework/threads.h"
#include "parallel/call_history.h"
#include "parallel/collectives.h"

namespace ringtrain {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto poll_interval = std::chrono::milliseconds(20);
constexpr auto error_report_wait = std::chrono::seconds(2);  // a rank may end its part in NCCL before it tells why

bool failed(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}

/// Returns how far the communicator is with what it was asked last, or what went wrong in it since.
ncclResult_t state_of(const NcclComm& comm) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm.handle, &state);
  return failed(asked) ? asked : state;
}

ncclResult_t post(const NcclComm& comm, const NcclOperation& one, cudaStream_t stream) {
  using Kind = NcclOperation::Kind;
  const ncclComm_t handle = comm.handle;
  switch (one.kind) {
    case Kind::send:
      return ncclSend(one.from, one.count, one.type, one.peer, handle, stream);
    case Kind::receive:
      return ncclRecv(one.to, one.count, one.type, one.peer, handle, stream);
    case Kind::reduce_scatter:
      return ncclReduceScatter(one.from, one.to, one.count, one.type, ncclSum, handle, stream);
    case Kind::reduce:
      return ncclReduce(one.from, one.to, one.count, one.type, ncclSum, one.peer, handle, stream);
    case Kind::all_gather:
      return ncclAllGather(one.from, one.to, one.count, one.type, handle, stream);
    case Kind::broadcast:
      return ncclBroadcast(one.from, one.to, one.count, one.type, one.peer, handle, stream);
  }
  return ncclInternalError;
}

/// Posts the operations as one group. The group is closed whatever happens in it.
ncclResult_t post(const NcclComm& comm, const NcclGroup& group, cudaStream_t stream) {
  ncclResult_t result = ncclGroupStart();
  if (failed(result)) return result;
  for (const NcclOperation& one : group.operations) {
    result = post(comm, one, stream);
    if (failed(result)) break;
  }
  const ncclResult_t ended = ncclGroupEnd();
  return failed(result) ? result : ended;
}

std::string described(const std::vector<CallSite>& sites) {
  std::string text;
  for (const CallSite& site : sites) text += (text.empty() ? "" : "; ") + described(site);
  return text;
}

/// Lets NCCL's own threads work: what it does most often takes some ten microseconds.
void pause(int polls) {
  if (polls < 50) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace

NcclRank::NcclRank(std::unique_ptr<Communicator> host, Stream& stream, double timeout_seconds)
    : host_(std::move(host)), stream_(stream), timeout_(timeout_seconds) {
  load();
  own_stream_ = cuda::make_urgent_stream("making a stream for NCCL");
  watchdog_ = start_thread(ExitCode::rank, fmt::format("the watchdog of {} over NCCL", name()), [this] { watchdog(); });
}

NcclRank::~NcclRank() {
  {
    Lock lock(mutex_);
    stop_ = true;
    if (!comms_.empty()) abandon(lock);
  }
  stop_changed_.notify_all();
  watchdog_->join();
  cuda::ignore(cudaStreamSynchronize(own_stream_));
  cuda::ignore(cudaStreamDestroy(own_stream_));
}

std::string NcclRank::name() const {
  return fmt::format("rank {} of {}", host_->rank(), host_->size());
}

/// Any function loads the library; each rank tells of its own machine's.
void NcclRank::load() {
  try {
    ncclGetErrorString(ncclSuccess);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", name(), error.what());
  }
}

/// Throws what NCCL reports. A remote error is another rank's: it ended, or the network to it did.
void NcclRank::fail_with(Lock& lock, ncclResult_t result, const NcclComm& comm, const std::string& what) {
  const Error own(result == ncclRemoteError ? ExitCode::rank : ExitCode::device,
                  fmt::format("{}: {} ({})", what, ncclGetErrorString(result), ncclGetLastError(comm.handle)));
  const auto deadline = Clock::now() + error_report_wait;
  while (result == ncclRemoteError && Clock::now() < deadline) {
    host_->throw_if_aborted();
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }
  throw Error(own);
}

// --- Communicators.

/// Waits until NCCL has done what it was asked for, which began with `result`: not every call that goes on in the
/// background says that it does (ncclCommSplit says success). The lock is free while it waits.
void NcclRank::await(Lock& lock, const NcclComm& comm, ncclResult_t result, const CallSite& site) {
  const auto deadline = Clock::now() + timeout_;
  if (!failed(result)) result = state_of(comm);
  for (int polls = 0; result == ncclInProgress; ++polls) {
    if (Clock::now() > deadline) {
      fail(ExitCode::rank, "{} waited {} s for the other ranks to come to {} (mesh.timeout_seconds)", name(),
           timeout_.count(), described(site));
    }
    lock.unlock();
    pause(polls);
    lock.lock();
    throw_if_comms_aborted();
    result = state_of(comm);
  }
  if (result != ncclSuccess) {
    fail_with(lock, result, comm, fmt::format("{}: {} of NCCL", name(), described(site)));
  }
}

/// Waits until the GPU has done all that NCCL was given. (The watchdog sees if it does not.)
void NcclRank::await_idle(Lock& lock) {
  const auto passed = [](const std::shared_ptr<NcclGroup>& group) { return group->done.passed(); };
  for (int polls = 0; !std::all_of(under_way_.begin(), under_way_.end(), passed); ++polls) {
    lock.unlock();
    pause(polls);
    lock.lock();
    throw_if_comms_aborted();
  }
}

/// Multiprocessors that NCCL's kernels may take from attention, a thread block each; without a bound it is up to 32. Of
/// 132 it is 6 %, and a hop's message needs less: 33 MB in 0.11 ms at 300 GB/s, where a hop computes for 1 to 2 ms. Not
/// yet run on several cards.
constexpr int most_thread_blocks = 8;

/// Calls body(lock, config), which makes the rank one of a communicator or throws.
template <class Body>
void NcclRank::enter(Body body) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = most_thread_blocks;
  Lock lock(mutex_);
  try {
    throw_if_comms_aborted();
    body(lock, config);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    abandon(lock);
    throw;
  }
}

void NcclRank::join(const std::shared_ptr<NcclComm>& comm) {
  constexpr CallSite making{"making a unique id"}, joining{"joining the ranks"};
  ncclUniqueId id{};
  if (host_->rank() == 0) {
    const ncclResult_t made = ncclGetUniqueId(&id);
    if (made != ncclSuccess) {
      Lock lock(mutex_);
      fail_with(lock, made, *comm, fmt::format("{}: {} of NCCL", name(), making.operation));
    }
  }
  broadcast(*host_, host_view(reinterpret_cast<std::uint8_t*>(id.internal), {NCCL_UNIQUE_ID_BYTES}), 0,
            {"handing round NCCL's unique id"});
  enter([&](Lock& lock, ncclConfig_t& config) {
    const ncclResult_t result = ncclCommInitRankConfig(&comm->handle, host_->size(), id, host_->rank(), &config);
    comms_.push_back(comm);
    await(lock, *comm, result, joining);
  });
}

/// NCCL gives the part only when the whole communicator has finished the split (NVIDIA/nccl 1472). It splits only a
/// communicator that has nothing under way. Parts have buffers of their own: with shared ones NVLink's reductions read
/// memory that was never set up (NVIDIA/nccl 2430).
void NcclRank::split(NcclComm& whole, int rank, Communicator& part, const std::shared_ptr<NcclComm>& comm) {
  constexpr CallSite splitting{"splitting the ranks"};
  std::int64_t colour = rank;  // NCCL wants it from 0 on: the part's first rank
  broadcast(part, host_view(&colour, {1}), 0, {"agreeing on the part of a split"});
  enter([&](Lock& lock, ncclConfig_t& config) {
    await_idle(lock);
    config.splitShare = 0;
    await(lock, whole, ncclCommSplit(whole.handle, static_cast<int>(colour), rank, &whole.part, &config), splitting);
    comm->handle = std::exchange(whole.part, nullptr);
    comms_.push_back(comm);
    await(lock, *comm, ncclInProgress, splitting);
  });
}

void NcclRank::close() {
  ensure(unwaited_ == 0, "all exchanges are waited for before a rank leaves NCCL");
  Lock lock(mutex_);
  throw_if_comms_aborted();
  while (!comms_.empty()) {
    NcclComm& last = *comms_.back();
    await(lock, last, ncclCommFinalize(last.handle), {"leaving the ranks"});
    ncclCommDestroy(std::exchange(last.handle, nullptr));
    comms_.pop_back();
  }
}

void NcclRank::let_go(bool idle) noexcept {
  Lock lock(mutex_);
  if (comms_.empty()) return;
  try {
    while (!under_way_.empty() && under_way_.front()->done.passed()) under_way_.pop_front();
    idle = idle && !aborted_ && under_way_.empty();
  } catch (const Error&) {  // the GPU has failed, which the watchdog tells
    idle = false;
  }
  if (!idle) abandon(lock);
}

void NcclRank::abandon(Lock& lock) noexcept {
  abort_comms(lock);
  lock.unlock();
  cuda::ignore(cudaStreamSynchronize(own_stream_));  // kernels are leaving
  lock.lock();
}

/// All at once: the abort of one frees GPU memory, which may wait for the GPU, and there a kernel of another one stands
/// until that is aborted, too (NVIDIA/nccl 549, 564). But the part of a split that did not come to its end after the
/// whole, whose abort ends the split and writes to the part (NVIDIA/nccl 2373).
void NcclRank::abort_comms(Lock&) {
  aborted_ = true;
  std::vector<std::future<void>> aborts;
  for (const std::shared_ptr<NcclComm>& comm : comms_) {
    const ncclComm_t handle = std::exchange(comm->handle, nullptr);
    if (handle == nullptr) continue;
    aborts.push_back(run_aside([handle, comm] {
      ncclCommAbort(handle);
      if (comm->part != nullptr) ncclCommAbort(std::exchange(comm->part, nullptr));
    }));
  }
  for (const std::future<void>& one : aborts) one.wait();
}

void NcclRank::throw_if_comms_aborted() const {
  if (!aborted_) return;
  host_->throw_if_aborted();
  fail(ExitCode::rank, "{} has ended its part in NCCL, with exchanges under way, and goes on calling", name());
}

void NcclRank::throw_if_aborted() {
  host_->throw_if_aborted();
  const Lock lock(mutex_);
  throw_if_comms_aborted();
}

// --- Groups.

void NcclRank::launch(NcclComm& comm, const std::shared_ptr<NcclGroup>& group) {
  host_->throw_if_aborted();
  Lock lock(mutex_);
  throw_if_comms_aborted();
  group->ready.record(stream_.cuda().stream());
  group->ready.make_wait(own_stream_);
  group->begun.record(own_stream_);
  await(lock, comm, post(comm, *group, own_stream_), group->sites.front());
  if (unwaited_ == 0) group->begun.make_wait(stream_.cuda().stream());
  ++unwaited_;
  group->done.record(own_stream_);
  under_way_.push_back(group);
}

void NcclRank::wait(NcclGroup& group) {
  throw_if_aborted();
  group.done.make_wait(stream_.cuda().stream());
  if (!std::exchange(group.waited_for, true)) --unwaited_;
}

// --- The watchdog.

void NcclRank::watchdog() {
  Lock lock(mutex_);
  while (!aborted_ && !stop_changed_.wait_for(lock, poll_interval, [&] { return stop_; })) {
    if (aborted_) return;
    try {
      poll(lock);
    } catch (const Error& error) {
      host_->abort(error);
      abort_comms(lock);
    }
  }
}

/// Throws what ends all ranks.
void NcclRank::poll(Lock& lock) {
  host_->throw_if_aborted();
  for (const std::shared_ptr<NcclComm>& comm : comms_) {
    if (comm->handle == nullptr) continue;
    const ncclResult_t state = state_of(*comm);
    if (failed(state)) fail_with(lock, state, *comm, fmt::format("{}: NCCL reports", name()));
  }
  while (!under_way_.empty() && under_way_.front()->done.passed()) under_way_.pop_front();
  if (under_way_.empty()) return;
  NcclGroup& group = *under_way_.front();  // those after it cannot run yet
  if (!group.could_run) {
    if (!group.ready.passed()) return;  // the GPU still computes what is sent: as long as that takes
    group.could_run = true;
    group.since = Clock::now();
  }
  if (Clock::now() - group.since > timeout_) {
    fail(ExitCode::rank, "{} waited {} s in {} on its GPU (mesh.timeout_seconds)", name(), timeout_.count(),
         described(group.sites));
  }
}

}  // namespace ringtrain
