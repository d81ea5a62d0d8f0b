#include "parallel/nccl/nccl_rank.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <random>
#include <utility>

#include "framework/cuda/check.h"
#include "framework/cuda/context.h"
#include "framework/cuda/kernel_loading.h"
#include "framework/system/run_aside.h"
#include "parallel/collectives.h"
#include "parallel/nccl/nccl_library.h"
#include "parallel/nccl/thread_blocks.h"

namespace ringtrain {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto poll_interval = std::chrono::milliseconds(20);
constexpr auto error_report_wait = std::chrono::seconds(2);  // a rank may abort NCCL before it reports the reason

bool failed(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}

/// Returns the state of the communicator's last operation, or the error that has occurred since.
ncclResult_t state_of(const NcclComm& comm) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl().ncclCommGetAsyncError(comm.handle, &state);
  return failed(asked) ? asked : state;
}

/// Posts the operations as one group. The group is closed in any case.
ncclResult_t post(const NcclComm& comm, const NcclGroup& group, cudaStream_t stream) {
  ncclResult_t result = nccl().ncclGroupStart();
  if (failed(result)) return result;
  for (const NcclOperation& operation : group.operations) {
    result = operation.post(comm.handle, stream);
    if (failed(result)) break;
  }
  const ncclResult_t ended = nccl().ncclGroupEnd();
  return failed(result) ? result : ended;
}

std::string described(const std::vector<CallSite>& sites) {
  std::string text;
  for (const CallSite& site : sites) text += (text.empty() ? "" : "; ") + described(site);
  return text;
}

/// Returns how a rank's group relates to other ranks.
std::vector<OperationSide> sides_of(const NcclComm& comm, const NcclGroup& group, int rank) {
  std::vector<OperationSide> sides;
  const auto add = [&](std::int64_t peer, OperationSide::Kind kind) {
    if (peer != rank) sides.push_back({static_cast<int>(peer), kind});
  };
  for (const auto& [peer, kind, post] : group.operations) {
    if (peer != no_peer) {
      add(comm.ranks[peer], kind);
    } else {
      for (const std::int64_t member : comm.ranks) add(member, kind);
    }
  }
  return sides;
}

/// Lets NCCL's own threads work between two checks of their progress. NCCL starts a thread for each operation, which
/// usually ends within some ten microseconds; a sleep takes at least its interval longer, hundreds of times per step.
/// So the rank only sleeps after waiting longer than any thread's start takes: in time, and in checks, because on a
/// busy machine a single check takes longer.
class Pause {
 public:
  void operator()() {
    if (++looks_ <= 300 || Clock::now() - begun_ < std::chrono::microseconds(300)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  const Clock::time_point begun_ = Clock::now();
  int looks_ = 0;
};

}  // namespace

std::int64_t number_of_process() {
  static const std::int64_t number = [] {
    std::random_device source;
    return static_cast<std::int64_t>(std::uint64_t{source()} << 32 | source());
  }();
  return number;
}

NcclRank::NcclRank(std::unique_ptr<Communicator> host, Stream& stream, double timeout_seconds)
    : host_(std::move(host)), stream_(stream), timeout_(timeout_seconds) {
  nccl();  // loads the library
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
  if (watchdog_) watchdog_->join();
  cuda::ignore(cudaStreamSynchronize(own_stream_));
  cuda::ignore(cudaStreamDestroy(own_stream_));
}

/// Throws NCCL's error. A remote error is another rank's: it ended, or the network to it failed.
void NcclRank::fail_with(Lock& lock, ncclResult_t result, const NcclComm& comm, const std::string& what) {
  const Error error(
      result == ncclRemoteError ? ExitCode::rank : ExitCode::device,
      fmt::format("{}: {} ({})", what, nccl().ncclGetErrorString(result), nccl().ncclGetLastError(comm.handle)));
  const auto deadline = Clock::now() + error_report_wait;
  while (result == ncclRemoteError && Clock::now() < deadline) {
    host_->throw_if_aborted();
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }
  throw Error(error);
}

// --- Communicators.

/// Waits until NCCL has done the operation that returned `result`: not every call that continues in the background says
/// so (ncclCommSplit returns success). The lock is free while it waits.
void NcclRank::await(Lock& lock, const NcclComm& comm, ncclResult_t result, const CallSite& site) {
  Waited waited;
  if (!failed(result)) result = state_of(comm);
  Pause pause;
  while (result == ncclInProgress) {
    if (waited.seconds() > timeout_.count()) {
      fail(ExitCode::rank, "{}",
           timeout_text(name(), timeout_.count(), "for the other ranks to reach " + described(site)));
    }
    lock.unlock();
    pause();
    lock.lock();
    throw_if_comms_aborted();
    result = state_of(comm);
  }
  if (result != ncclSuccess) {
    fail_with(lock, result, comm, fmt::format("{}: {} of NCCL", name(), described(site)));
  }
}

/// Waits until the GPU has done all of NCCL's work. (The watchdog notices if it does not.)
void NcclRank::await_idle(Lock& lock) {
  const auto passed = [](const std::shared_ptr<NcclGroup>& group) { return group->done.passed(); };
  Pause pause;
  while (!std::all_of(under_way_.begin(), under_way_.end(), passed)) {
    lock.unlock();
    pause();
    lock.lock();
    throw_if_comms_aborted();
  }
}

/// Calls body(lock, config), which makes the rank a member of a communicator or throws.
template <class Body>
void NcclRank::enter(Body body) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = nccl_thread_blocks;
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
  ncclUniqueId id{};
  if (host_->rank() == 0) {
    const ncclResult_t made = nccl().ncclGetUniqueId(&id);
    Lock lock(mutex_);
    if (made != ncclSuccess) fail_with(lock, made, *comm, fmt::format("{}: making a unique id of NCCL", name()));
  }
  broadcast(*host_, host_view(reinterpret_cast<std::uint8_t*>(id.internal), {NCCL_UNIQUE_ID_BYTES}), 0,
            {"sending NCCL's unique id to all ranks"});
  enter([&](Lock& lock, ncclConfig_t& config) {
    const ncclResult_t result = nccl().ncclCommInitRankConfig(&comm->handle, host_->size(), id, host_->rank(), &config);
    comms_.push_back(comm);
    await(lock, *comm, result, {"joining the ranks"});
  });
  comm->ranks.resize(host_->size());
  std::iota(comm->ranks.begin(), comm->ranks.end(), 0);
  meet_threads();
}

/// Threads of one process share one Lockstep, identified by a number from rank 0.
void NcclRank::meet_threads() {
  constexpr CallSite meeting{"meeting the ranks that are threads"};
  static std::atomic<std::int64_t> numbers = 0;
  const std::array<std::int64_t, 2> introduction{number_of_process(), numbers++};
  const std::vector<std::int64_t> all = all_gather(*host_, introduction, meeting);
  for (std::size_t rank = 0; rank < all.size(); rank += introduction.size()) {
    if (all[rank] != all[0]) return;
  }
  lockstep_ = Lockstep::of_process(all[1], host_->size());
  cuda::load_kernels();
  host_->barrier(meeting);  // none waits for a rank that still loads
}

/// NCCL returns the part only when the whole communicator has finished the split (NVIDIA/nccl 1472). It only splits a
/// communicator without pending operations. Parts have their own buffers: with shared ones, NVLink's reductions read
/// memory that was never set up (NVIDIA/nccl 2430).
void NcclRank::split(NcclComm& whole, int rank, Communicator& part, const std::shared_ptr<NcclComm>& comm) {
  constexpr CallSite splitting{"splitting the ranks"};
  std::int64_t color = rank;  // NCCL requires a nonnegative color: the part's first rank
  broadcast(part, host_view(&color, {1}), 0, {"agreeing on the part of a split"});
  enter([&](Lock& lock, ncclConfig_t& config) {
    await_idle(lock);
    config.splitShare = 0;
    await(lock, whole, nccl().ncclCommSplit(whole.handle, static_cast<int>(color), rank, &whole.part, &config),
          splitting);
    comm->handle = std::exchange(whole.part, nullptr);
    comms_.push_back(comm);
    await(lock, *comm, ncclInProgress, splitting);
  });
  comm->ranks = all_gather(part, std::array<std::int64_t, 1>{host_->rank()}, splitting);
}

void NcclRank::close() {
  ensure(unwaited_ == 0, "all exchanges are waited for before a rank leaves NCCL");
  Lock lock(mutex_);
  throw_if_comms_aborted();
  while (!comms_.empty()) {
    NcclComm& last = *comms_.back();
    await(lock, last, nccl().ncclCommFinalize(last.handle), {"leaving the ranks"});
    nccl().ncclCommDestroy(std::exchange(last.handle, nullptr));
    comms_.pop_back();
  }
}

void NcclRank::let_go(bool idle) noexcept {
  Lock lock(mutex_);
  if (comms_.empty()) return;
  try {
    while (!under_way_.empty() && under_way_.front()->done.passed()) under_way_.pop_front();
    idle = idle && !aborted_ && under_way_.empty();
  } catch (const Error&) {  // the GPU has failed, which the watchdog reports
    idle = false;
  }
  if (!idle) abandon(lock);
}

void NcclRank::abandon(Lock& lock) noexcept {
  abort_comms(lock);
  lock.unlock();
  cuda::ignore(cudaStreamSynchronize(own_stream_));  // kernels are ending
  lock.lock();
}

/// Aborts all at once: the abort of one frees GPU memory, which may wait for the GPU, where a kernel of another one
/// blocks until that is also aborted (NVIDIA/nccl 549, 564). Exception: the part of an unfinished split is aborted
/// after the whole, whose abort ends the split and writes to the part (NVIDIA/nccl 2373).
void NcclRank::abort_comms(Lock&) {
  aborted_ = true;
  std::vector<std::future<void>> aborts;
  for (const std::shared_ptr<NcclComm>& comm : comms_) {
    const ncclComm_t handle = std::exchange(comm->handle, nullptr);
    if (handle == nullptr) continue;
    aborts.push_back(run_aside([handle, comm] {
      nccl().ncclCommAbort(handle);
      if (comm->part != nullptr) nccl().ncclCommAbort(std::exchange(comm->part, nullptr));
    }));
  }
  for (const std::future<void>& future : aborts) future.wait();
}

void NcclRank::throw_if_comms_aborted() const {
  if (!aborted_) return;
  host_->throw_if_aborted();
  fail(ExitCode::rank, "{} has left NCCL while exchanges were in progress, and still makes calls", name());
}

void NcclRank::throw_if_aborted() {
  host_->throw_if_aborted();
  const Lock lock(mutex_);
  throw_if_comms_aborted();
}

// --- Groups.

void NcclRank::launch(NcclComm& comm, const std::shared_ptr<NcclGroup>& group) {
  host_->throw_if_aborted();
  if (!in_lockstep_) return post_and_record(comm, group, /*until_done=*/false);
  Waited waited;
  const std::chrono::duration<double> limit = timeout_ + error_report_wait;  // a rank that waits on its GPU knows more
  const auto look = [&] {
    throw_if_aborted();
    if (waited.seconds() <= limit.count()) return;
    fail(ExitCode::rank, "{}",
         timeout_text(name(), timeout_.count(), "for the other ranks to reach " + described(group->sites)));
  };
  lockstep_->begin(host_->rank(), sides_of(comm, *group, host_->rank()), look);
  post_and_record(comm, group, /*until_done=*/true);
  lockstep_->end(host_->rank(), look);
}

/// In both directions, no rank may still be in another pass than the others: its operations would wait while they load.
void NcclRank::set_lockstep(bool on) {
  if (!lockstep_ || on == in_lockstep_) return;
  constexpr CallSite first_pass{"beginning or ending a first pass"};
  host_->barrier(first_pass);
  if (on) {  // all have posted their pending operations
    {
      Lock lock(mutex_);
      throw_if_comms_aborted();
      await_idle(lock);
    }
    host_->barrier(first_pass);
  }
  in_lockstep_ = on;
}

void NcclRank::post_and_record(NcclComm& comm, const std::shared_ptr<NcclGroup>& group, bool until_done) {
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
  if (until_done) await_idle(lock);
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

/// Throws an error that ends all ranks.
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
  if (!group.waited) {
    if (!group.ready.passed()) return;  // the GPU still computes the data to send, for any time
    group.waited.emplace();
  }
  if (group.waited->seconds() > timeout_.count()) {
    fail(ExitCode::rank, "{}", timeout_text(name(), timeout_.count(), "in " + described(group.sites) + " on its GPU"));
  }
}

}  // namespace ringtrain
