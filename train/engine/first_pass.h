// The first pass of a kind through a rank's model, in which cuBLASLt loads kernels: in lockstep (see
// Communicator::set_lockstep), where NCCL joins the ranks.
#pragma once

#include <string>
#include <utility>

#include "train/engine/rank_state.h"

namespace ringtrain {

class FirstPass {
 public:
  /// kind: tells passes with other kernels, or products of other shapes, apart; the same on every rank. After a pass
  /// of the kind has ended this does nothing. Collective over state.world; state must outlive it.
  FirstPass(RankState& state, std::string kind) : state_(state), kind_(std::move(kind)) {
    begun_ = state.gpus != nullptr && !state.passes.contains(kind_);
    if (begun_) state.gpus->set_lockstep(true);
  }
  FirstPass(const FirstPass&) = delete;
  FirstPass& operator=(const FirstPass&) = delete;

  /// The pass has done all that its kind does. Collective. What never comes here lets the next one be the first. The
  /// weights that it changed are gathered here: the next pass would gather them, and no longer in lockstep.
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
