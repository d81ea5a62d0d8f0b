// The first pass of a kind through a rank's model, in which cuBLASLt loads kernels. If NCCL connects the ranks, it runs
// in lockstep (see Communicator::set_lockstep).
#pragma once

#include <string>
#include <utility>

#include "train/engine/rank_state.h"

namespace ringtrain {

class FirstPass {
 public:
  /// kind: distinguishes passes with different kernels or product shapes; it must be the same on every rank. After a
  /// pass of the kind has ended, this does nothing. Collective over state.world; state must outlive it.
  FirstPass(RankState& state, std::string kind) : state_(state), kind_(std::move(kind)) {
    begun_ = state.gpus != nullptr && !state.passes.contains(kind_);
    if (begun_) state.gpus->set_lockstep(true);
  }
  FirstPass(const FirstPass&) = delete;
  FirstPass& operator=(const FirstPass&) = delete;

  /// Says that the pass has run everything that its kind runs. Collective. If a pass never gets here, the next one is
  /// the first. This gathers the weights that the pass changed: the next pass would gather them, but no longer in
  /// lockstep.
  void end() {
    if (!std::exchange(begun_, false)) return;
    state_.parameters.gather_changed();
    state_.gpus->set_lockstep(false);
    state_.passes.insert(kind_);
  }

 private:
  RankState& state_;
  const std::string kind_;
  bool begun_ = false;
};

}  // namespace ringtrain
