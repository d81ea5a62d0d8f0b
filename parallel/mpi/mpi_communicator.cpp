#include "parallel/mpi/mpi_communicator.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>

#include "parallel/check_exchange.h"
#include "parallel/collectives.h"

namespace ringtrain {

namespace {

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MpiWorld& world, std::vector<int> members, int context)
      : world_(world),
        members_(std::move(members)),
        rank_(static_cast<int>(std::find(members_.begin(), members_.end(), world.rank()) - members_.begin())),
        context_(context) {}
  ~MpiCommunicator() override { world_.forget(this); }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  Request exchange(const ConstTensorView& send, int to, const TensorView& receive, int from, const CallSite& site,
                   const CallerLine& line) override {
    if (to == no_peer && from == no_peer) return {};
    check_exchange(send, to, receive, from, size(), /*device_memory=*/false, line);
    return world_.exchange(send, receive, {context_, world_rank(to), world_rank(from)}, site, this);
  }

  void set_stream(Stream& stream) override {
    if (stream.on_cuda()) {
      fail(ExitCode::usage,
           "mesh.backend mpi sends only host memory, but this rank computes on {}; use nccl, or ranks that are "
           "threads "
           "of one process",
           stream.device().name());
    }
  }

  void wait(Request request, const CallerLine& line) override { world_.wait(request, line); }
  void barrier(const CallSite& site) override { world_.barrier(members_, context_, site, this); }
  /// New contexts begin after all contexts of any member, one for each color, so two communicators of one context have
  /// no rank in common.
  std::unique_ptr<Communicator> split(int color) override {
    const std::array<std::int64_t, 2> color_and_context{color, world_.next_context()};
    const std::vector<std::int64_t> all = ringtrain::all_gather(*this, color_and_context, {"split"});
    std::set<std::int64_t> colors;
    std::vector<int> members;
    std::int64_t begin = 0;
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      colors.insert(all[2 * rank]);
      begin = std::max(begin, all[2 * rank + 1]);
      if (all[2 * rank] == color) members.push_back(members_[rank]);
    }
    const auto index = std::distance(colors.begin(), colors.find(color));
    world_.use_contexts(static_cast<int>(begin + std::ssize(colors)));
    return std::make_unique<MpiCommunicator>(world_, std::move(members), static_cast<int>(begin + index));
  }

  void abort(const Error& error) override { world_.abort(error); }
  void throw_if_aborted() override { world_.throw_if_aborted(); }

 private:
  int world_rank(int rank) const { return rank == no_peer ? no_peer : members_[rank]; }

  MpiWorld& world_;
  const std::vector<int> members_;  // world ranks
  const int rank_, context_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MpiWorld& world) {
  std::vector<int> all(world.size());
  std::iota(all.begin(), all.end(), 0);
  return std::make_unique<MpiCommunicator>(world, std::move(all), 0);
}

}  // namespace ringtrain
