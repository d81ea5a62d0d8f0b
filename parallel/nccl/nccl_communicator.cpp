#include "parallel/nccl/nccl_communicator.h"

#include <array>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/cuda/check.h"
#include "framework/cuda/context.h"
#include "framework/system/host_name.h"
#include "parallel/call_history.h"
#include "parallel/check_exchange.h"
#include "parallel/collectives.h"
#include "parallel/nccl/nccl_library.h"
#include "parallel/nccl/nccl_rank.h"
#include "parallel/nccl/thread_blocks.h"

namespace ringtrain {

namespace {

ncclDataType_t summed_type(DType dtype) {
  if (dtype == DType::float32) return ncclFloat32;
  if (dtype == DType::float64) return ncclFloat64;
  if (dtype == DType::bfloat16) return ncclBfloat16;
  fail(ExitCode::internal, "a sum over ranks is of floating-point numbers");
}

class NcclCommunicator final : public Communicator {
 public:
  /// For all ranks of nccl's host.
  explicit NcclCommunicator(std::shared_ptr<NcclRank> nccl) : nccl_(std::move(nccl)), host_(nccl_->host()) {
    nccl_->join(comm_);
  }

  /// For some ranks of another communicator; part: their host memory.
  NcclCommunicator(NcclCommunicator& whole, std::unique_ptr<Communicator> part)
      : nccl_(whole.nccl_), part_(std::move(part)), host_(*part_) {
    nccl_->split(*whole.comm_, whole.rank(), host_, comm_);
  }

  ~NcclCommunicator() override { nccl_->let_go(/*idle=*/groups_.empty() && !group_); }

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  void set_stream(Stream& stream) override {
    ensure(&stream == &nccl_->stream(), "NCCL is ordered with the stream that it was made for");
  }

  Request exchange(const ConstTensorView& send, int to, const TensorView& receive, int from, const CallSite& site,
                   const CallerLine& line) override {
    if (to == no_peer && from == no_peer) return {};
    const Device device = to != no_peer ? send.device : receive.device;
    if (device.is_cpu()) return of_host(host_.exchange(send, to, receive, from, site, line));
    check_exchange(send, to, receive, from, size(), /*device_memory=*/true, line);
    require_call(to == no_peer || from == no_peer || receive.device == device,
                 "both sides of an exchange must use the same kind of memory", line);
    require_call((to == rank()) == (from == rank()),
                 "a rank that sends to itself must receive from itself in the same exchange", line);
    nccl_->throw_if_aborted();
    std::vector<NcclOperation> halves;  // without those of zero bytes, which neither side posts
    if (to != no_peer && send.bytes() > 0) {
      halves.push_back({to, OperationSide::Kind::sends, [send, to](ncclComm_t comm, cudaStream_t stream) {
                          return nccl().ncclSend(send.data, send.bytes(), ncclUint8, to, comm, stream);
                        }});
    }
    if (from != no_peer && receive.bytes() > 0) {
      halves.push_back({from, OperationSide::Kind::receives, [receive, from](ncclComm_t comm, cudaStream_t stream) {
                          return nccl().ncclRecv(receive.data, receive.bytes(), ncclUint8, from, comm, stream);
                        }});
    }
    if (halves.empty()) return {};

    const std::shared_ptr<NcclGroup> group = group_ ? group_ : std::make_shared<NcclGroup>();
    group->operations.insert(group->operations.end(), halves.begin(), halves.end());
    if (group->sites.empty() || !same_site(group->sites.back(), site)) group->sites.push_back(site);
    groups_.emplace(++requests_, group);  // before the launch, which may throw: the destructor then aborts it
    if (group_depth_ > 0) {
      group_ = group;
    } else {
      nccl_->launch(*comm_, group);
    }
    return of_group(requests_);
  }

  int multiprocessors() const override { return nccl_thread_blocks; }
  bool reduces_gpu_memory() const override { return true; }
  Request reduce_scatter(const TensorView& x, const CallSite& site) override {
    const ncclDataType_t type = summed_type(x.dtype);
    return collective(x, site, [x, type](const TensorView& slice, int owner, ncclComm_t comm, cudaStream_t stream) {
      const auto count = static_cast<std::size_t>(slice.numel());
      return owner == no_peer ? nccl().ncclReduceScatter(x.data, slice.data, count, type, ncclSum, comm, stream)
                              : nccl().ncclReduce(slice.data, slice.data, count, type, ncclSum, owner, comm, stream);
    });
  }

  Request all_gather(const TensorView& x, const CallSite& site) override {
    return collective(x, site, [x](const TensorView& slice, int owner, ncclComm_t comm, cudaStream_t stream) {
      const std::size_t bytes = slice.bytes();
      return owner == no_peer ? nccl().ncclAllGather(slice.data, x.data, bytes, ncclUint8, comm, stream)
                              : nccl().ncclBroadcast(slice.data, slice.data, bytes, ncclUint8, owner, comm, stream);
    });
  }

  void set_lockstep(bool on) override {
    ensure(!group_, "a rank changes to lockstep between its operations");
    nccl_->set_lockstep(on);
  }

  void wait(Request request, const CallerLine& line) override {
    if (request.id == 0) return;
    if ((request.id & 1) == 0) return host_.wait({request.id >> 1}, line);
    require_call(group_depth_ == 0, "a group must be closed before its exchanges are waited for", line);
    const auto found = groups_.find(request.id >> 1);
    check_waited(found != groups_.end(), line);
    nccl_->wait(*found->second);
    groups_.erase(found);
  }

  void begin_group() override {
    host_.begin_group();
    ++group_depth_;
  }

  void end_group() override {
    host_.end_group();
    if (--group_depth_ == 0 && group_) nccl_->launch(*comm_, std::exchange(group_, nullptr));
  }

  void barrier(const CallSite& site) override { host_.barrier(site); }
  std::unique_ptr<Communicator> split(int color) override {
    ensure(groups_.empty() && !group_, "all exchanges are waited for before a split");
    return std::make_unique<NcclCommunicator>(*this, host_.split(color));
  }

  void close() override {
    ensure(!part_, "the ranks that NCCL joined first are closed, and with them their parts");
    nccl_->close();
  }

  void abort(const Error& error) override { host_.abort(error); }  // the watchdog then aborts NCCL
  void throw_if_aborted() override { nccl_->throw_if_aborted(); }

 private:
  /// One group on the slices of x: post(slice, owner, NCCL's communicator, stream), once for all if they have equal
  /// lengths (owner: no_peer), otherwise once for each.
  template <class Post>
  Request collective(const TensorView& x, const CallSite& site, Post post) {
    ensure(group_depth_ == 0 && !x.device.is_cpu(), "a collective is of GPU memory, and a group by itself");
    if (size() == 1 || x.numel() == 0) return {};
    nccl_->throw_if_aborted();
    const auto group = std::make_shared<NcclGroup>();
    group->sites.push_back(site);
    const auto add = [&](int owner, int root) {
      const Slice part = slice_of(x.numel(), size(), owner);
      if (part.count() == 0) return;
      const TensorView slice = x.flat(part.begin, part.end);
      group->operations.push_back({.post = [post, slice, root](ncclComm_t comm, cudaStream_t stream) {
        return post(slice, root, comm, stream);
      }});
    };
    if (x.numel() % size() == 0) {
      add(rank(), no_peer);
    } else {
      for (int owner = 0; owner < size(); ++owner) add(owner, owner);
    }
    groups_.emplace(++requests_, group);
    nccl_->launch(*comm_, group);
    return of_group(requests_);
  }

  /// The last bit distinguishes requests of the host's communicator from those of NCCL's groups.
  static Request of_host(Request request) { return {request.id << 1}; }
  static Request of_group(std::uint64_t id) { return {id << 1 | 1}; }

  const std::shared_ptr<NcclRank> nccl_;  // shared by all communicators that were split from one another
  const std::unique_ptr<Communicator> part_;
  Communicator& host_;
  const std::shared_ptr<NcclComm> comm_ = std::make_shared<NcclComm>();
  std::uint64_t requests_ = 0;
  std::unordered_map<std::uint64_t, std::shared_ptr<NcclGroup>> groups_;  // not waited for yet
  int group_depth_ = 0;
  std::shared_ptr<NcclGroup> group_;  // the open group's, once it has messages
};

/// Makes NCCL let threads share a GPU, if it can. Returns whether it can.
bool lets_threads_share_gpus() {
  constexpr int first = NCCL_VERSION(2, 30, 0);
  int version = 0;
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  return nccl().ncclGetVersion(&version) == ncclSuccess && version >= first;
}

/// Makes NCCL treat processes that share a GPU as processes of different hosts, which meet on this host's loopback.
void let_processes_share_gpus(int rank) {
  ::setenv("NCCL_HOSTID", fmt::format("{}-rank-{}", host_name(), rank).c_str(), 0);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  ::setenv("NCCL_IB_DISABLE", "1", 0);
}

}  // namespace

/// The only rule that decides which ranks may share a GPU under NCCL.
std::string nccl_refusal(Communicator& world, Device device, bool share_gpu) {
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, device.index), "asking for the properties of the GPU", device.index);
  std::array<std::int64_t, 3> gpu_and_process{0, 0, number_of_process()};  // the GPU's id in two halves
  std::memcpy(gpu_and_process.data(), &properties.uuid, sizeof(properties.uuid));
  const std::vector<std::int64_t> all = all_gather(world, gpu_and_process, {"gather of GPUs"});
  for (int b = 1; b < world.size(); ++b) {
    for (int a = 0; a < b; ++a) {
      const auto *first = &all[a * gpu_and_process.size()], *second = &all[b * gpu_and_process.size()];
      if (first[0] != second[0] || first[1] != second[1]) continue;
      if (!share_gpu) {  // NCCL would refuse it with a shorter message
        return fmt::format(
            "NCCL needs one GPU for each rank, but ranks {} and {} of {} share one (GPUs here: {}); start no more "
            "ranks on a machine than it has GPUs, or use mesh.backend threads, whose ranks may share a GPU; to check "
            "processes on one GPU, set mesh.share_gpu to true",
            a, b, world.size(), cuda::device_count());
      }
      if (first[2] != second[2]) {
        let_processes_share_gpus(world.rank());
      } else if (!lets_threads_share_gpus()) {
        return "mesh.share_gpu: NCCL lets threads share a GPU from 2.30 on, but the NCCL here is older; start "
               "processes (scripts/launch), or set this key to false and mesh.backend to threads";
      }
      return "";
    }
  }
  return share_gpu ? "mesh.share_gpu: each rank has a GPU of its own; set it to false" : "";
}

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& world, Stream& stream, double timeout_seconds,
                                                     bool share_gpu) {
  const std::string refusal = nccl_refusal(world, stream.device(), share_gpu);
  if (!refusal.empty()) fail(ExitCode::usage, "{}", refusal);
  return std::make_unique<NcclCommunicator>(std::make_shared<NcclRank>(world.split(0), stream, timeout_seconds));
}

}  // namespace ringtrain
