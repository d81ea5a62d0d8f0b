// One pass of one layer through the ring, forward or backward: what is posted, waited for and shown to the visitor at
// each hop. Made for the pass, on the stack. Communicates over the ring's two communicators.
#pragma once

#include <functional>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/ring/ring_batch.h"
#include "parallel/ring/ring_block.h"
#include "parallel/ring/ring_buffers.h"
#include "parallel/ring/ring_times.h"

namespace ringtrain {

/// What the passes of a ring share; null communicators: a ring of one.
struct RingResources {
  Communicator* keys = nullptr;       // keys, values and document ids
  Communicator* gradients = nullptr;  // dk and dv
  const RingBuffers& buffers;
  RingBatch& batch;
  RingTimes& times;
};

/// What a pass is given: this rank's own kv and, in backward, dkv [2, B, T, G, D]; document ids int32 [B, T], or none.
struct RingTensors {
  TensorView kv, documents, dkv;
  bool backward = false;
};

class RingPass {
 public:
  RingPass(Stream& stream, int layer, const RingResources& ring, const RingTensors& own);

  /// Shows every block to the visitor, in the order of hops. overlap: runs while the last gradients return; may be
  /// empty. Throws the first error of any rank.
  void run(const RingVisitor& visitor, const std::function<void()>& overlap);

 private:
  /// The gradients of a part of a block: dk and dv [sequences, tokens, G, D].
  struct PartGradients {
    TensorView dk, dv;
    TensorView both;  // if they lie one after the other: all of a block
    /// What one message each carries.
    std::vector<TensorView> messages() const;
  };
  struct GradientRound {
    std::vector<Request> requests = {};
    const RingReturn* returned = nullptr;  // among them,
    RingPart tokens = {};                  // of these
  };
  /// What one message each carries of an exchange's two sides, and who they are.
  struct Messages {
    std::vector<TensorView> sent;
    int to = no_peer;
    std::vector<TensorView> received;
    int from = no_peer;
  };

  /// Returns the tokens of the block that is met at a step.
  const RingPart& tokens_of(const RingStep& step) const { return batch_.round(step.hop).of_step; }
  TensorView kv_of(const RingStep& step) const;
  TensorView documents_of(const RingStep& step) const;
  std::vector<TensorView> kv_messages(const TensorView& kv, const RingPart& tokens, int owner) const;
  PartGradients part_of_pair(const TensorView& pair, const RingPart& tokens) const;
  PartGradients gradients_of(const RingStep& step, std::size_t part) const;
  std::vector<TensorView> leaving_gradients(const RingStep& step, std::size_t part) const;
  PartGradients returned_gradients(const RingReturn& of, const RingPart& tokens) const;
  /// Posts one exchange a pair of messages, whichever side has more.
  void exchange(Communicator& communicator, std::vector<Request>& requests, const Messages& messages,
                const CallSite& site) const;

  void post_keys(int hop);
  void post_gradients(int hop, std::size_t part);
  void finish_gradients(int hop, std::size_t part);
  void wait(Communicator& communicator, std::vector<Request>& requests, int hop);
  void visit(const RingBlock& block, const RingVisitor& visitor);
  void forward_hop(const RingStep& step, const RingVisitor& visitor);
  void backward_hop(int hop, const RingVisitor& visitor);

  Stream& stream_;
  const int layer_;
  const RingResources ring_;
  RingBatch& batch_;
  const RingTensors own_;
  const bool backward_;
  std::vector<Request> arriving_;               // keys and values for the next hop, and what is sent on for it
  std::vector<Request> departing_;              // own block to starts of runs: not waited for before the pass ends
  std::vector<GradientRound> gradient_rounds_;  // by part: the last one
};

}  // namespace ringtrain
