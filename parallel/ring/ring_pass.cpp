#include "parallel/ring/ring_pass.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/profile/trace.h"
#include "kernels/elementwise.h"

namespace ringtrain {

// Messages move in rounds, one a hop, and in a round a pair of ranks has at most one message of a kind (and of a part,
// for gradients), so both sides post in the same order. In round h a rank posts the keys and values for hop h + 1,
// computes hop h, part by part, and after each part posts its gradients (to the right or to the owner) together with
// those of the same part that it continues at hop h + 1. What it waits for in part p of round h, its peers post in part
// p of their round h - 1, whatever they compute: by induction nothing waits in a circle.

RingPass::RingPass(Stream& stream, int layer, const RingResources& ring, const RingTensors& own)
    : stream_(stream),
      layer_(layer),
      ring_(ring),
      batch_(ring.batch),
      own_(own),
      backward_(own.backward),
      gradient_rounds_(backward_ ? ring.batch.parts().size() : 0) {}

std::vector<TensorView> RingPass::PartGradients::messages() const {
  return both.empty() ? std::vector<TensorView>{dk, dv} : std::vector<TensorView>{both};
}

TensorView RingPass::kv_of(const RingStep& step) const {
  if (step.hop == 0) return own_.kv;
  return ring_.buffers.keys_and_values(step.hop, batch_.sequences(), batch_.tokens_of(step.owner));
}

TensorView RingPass::documents_of(const RingStep& step) const {
  if (step.hop == 0 || own_.documents.empty()) return own_.documents;
  return ring_.buffers.documents(step.hop, batch_.sequences(), batch_.tokens_of(step.owner));
}

/// Returns a part of a pair [2, B, T, G, D], of T tokens.
RingPass::PartGradients RingPass::part_of_pair(const TensorView& pair, std::size_t part) const {
  const RingPart own = part_of_shard(batch_.parts()[part], pair.dim(2));
  return {part_of(pair.select(0), own), part_of(pair.select(1), own), batch_.parts().size() == 1 ? pair : TensorView{}};
}

/// Returns the gradients of a part of the block met at a step. In a buffer a part's place is that of the largest shard.
RingPass::PartGradients RingPass::gradients_of(const RingStep& step, std::size_t part) const {
  if (step.hop == 0) return part_of_pair(own_.dkv, part);
  const RingPart own = batch_.part_of_block(step.owner, part);
  const auto [G, D] = std::pair(ring_.buffers.capacity().G, ring_.buffers.capacity().D);
  const std::int64_t begin = 2 * (own.first_sequence * batch_.longest() + own.first_token) * G * D;
  const TensorView both = ring_.buffers.gradients(step.hop, begin, {2, own.sequences, own.tokens, G, D});
  return {both.select(0), both.select(1), batch_.parts().size() == 1 ? both : TensorView{}};
}

RingPass::PartGradients RingPass::returned_gradients(const RingReturn& of, std::size_t part) const {
  return part_of_pair(of.replaces ? own_.dkv : ring_.buffers.returned(own_.dkv.shape), part);
}

/// Posts what this rank sends and receives so that blocks are where hop `hop` needs them.
void RingPass::post_keys(int hop) {
  const RingStep* before = batch_.round(hop - 1).step;
  const RingStep* next = batch_.round(hop).step;
  const int to = before ? before->forward_to : no_peer, from = next ? next->receive_from : no_peer;
  const CallSite site{.operation = "ring keys and values", .layer = layer_, .hop = hop};
  const CallSite documents_site{.operation = "ring document ids", .layer = layer_, .hop = hop};
  const auto exchange = [&](std::vector<Request>& requests, const RingStep* sent, int receiver,
                            const RingStep* received, int sender) {
    requests.push_back(ring_.keys->exchange(receiver == no_peer ? TensorView{} : kv_of(*sent), receiver,
                                            sender == no_peer ? TensorView{} : kv_of(*received), sender, site));
    if (own_.documents.empty()) return;
    requests.push_back(ring_.keys->exchange(receiver == no_peer ? TensorView{} : documents_of(*sent), receiver,
                                            sender == no_peer ? TensorView{} : documents_of(*received), sender,
                                            documents_site));
  };
  post_together(*ring_.keys, [&] {
    // What is sent comes first: see Communicator::exchange.
    if (const RingDelivery* delivery = batch_.round(hop).delivery) {
      exchange(departing_, batch_.round(0).step, delivery->to, nullptr, no_peer);
    }
    exchange(arriving_, before, to, next, from);
  });
}

/// Posts a part's gradients: those of the block met at `hop`, those of the block that this rank continues at the next
/// hop, and those of its own block that return.
void RingPass::post_gradients(int hop, std::size_t part) {
  const RingStep* step = batch_.round(hop).step;
  const RingStep* next = batch_.round(hop + 1).step;
  const int to = step ? step->gradient_to : no_peer, from = next ? next->gradient_from : no_peer;
  GradientRound& of = gradient_rounds_[part];
  const auto messages = [&](const RingStep* block, int peer) {
    return peer == no_peer ? std::vector<TensorView>{} : gradients_of(*block, part).messages();
  };
  const auto exchange = [&](const std::vector<TensorView>& sent, int receiver, const std::vector<TensorView>& received,
                            int sender) {
    const CallSite site{.operation = "ring gradients", .layer = layer_, .hop = hop};
    for (std::size_t i = 0; i < std::max(sent.size(), received.size()); ++i) {
      of.requests.push_back(ring_.gradients->exchange(sent.empty() ? TensorView{} : sent[i], receiver,
                                                      received.empty() ? TensorView{} : received[i], sender, site));
    }
  };
  of.returned = batch_.round(hop).returned;
  post_together(*ring_.gradients, [&] {
    exchange(messages(step, to), to, messages(next, from), from);
    if (of.returned) exchange({}, no_peer, returned_gradients(*of.returned, part).messages(), of.returned->from);
  });
}

/// Ends the part's round before `hop`.
void RingPass::finish_gradients(int hop, std::size_t part) {
  GradientRound& of = gradient_rounds_[part];
  if (ring_.gradients) wait(*ring_.gradients, of.requests, hop);
  if (of.returned && !of.returned->replaces) {
    const PartGradients own = part_of_pair(own_.dkv, part), came = returned_gradients(*of.returned, part);
    add(stream_, own.dk, came.dk);
    add(stream_, own.dv, came.dv);
  }
  of.returned = nullptr;
}

/// hop: which one cannot go on before; the ring's size: the end of the pass.
void RingPass::wait(Communicator& communicator, std::vector<Request>& requests, int hop) {
  if (requests.empty()) return;
  ring_.times.wait(stream_, backward_, hop, [&] {
    for (const Request request : requests) communicator.wait(request);
  });
  requests.clear();
}

void RingPass::visit(const RingBlock& block, const RingVisitor& visitor) {
  ring_.times.visit(stream_, backward_, block.pairs, [&] { visitor(block); });
}

void RingPass::forward_hop(const RingStep& step, const RingVisitor& visitor) {
  const TensorView kv = kv_of(step);
  const std::span<const std::int64_t> counts = batch_.pairs_of(step);
  visit({.owner = step.owner,
         .hop = step.hop,
         .first = batch_.is_first(step.hop),
         .last = batch_.is_last(step.hop),
         .sequences = batch_.sequences(),
         .pairs = std::accumulate(counts.begin(), counts.end(), std::int64_t{0}),
         .k = kv.select(0),
         .v = kv.select(1),
         .tokens = {batch_.segments_of(step.owner), documents_of(step)}},
        visitor);
}

void RingPass::backward_hop(int hop, const RingVisitor& visitor) {
  const RingStep* step = batch_.round(hop).step;
  const std::size_t parts = batch_.parts().size();
  for (std::size_t i = 0; i < parts; ++i) {
    finish_gradients(hop, i);
    if (step) {
      const RingPart part = batch_.part_of_block(step->owner, i);
      const SegmentList positions = batch_.segments_of_part(step->owner, i);
      const TensorView kv = kv_of(*step);
      const PartGradients sums = gradients_of(*step, i);
      const std::int64_t pairs = batch_.pairs_of(*step)[i];
      const bool begins = step->gradient_from == no_peer;
      if (begins && pairs == 0) {  // nobody computes anything
        for (const TensorView& piece : sums.messages()) fill(stream_, piece, 0.0);
      }
      visit({.owner = step->owner,
             .hop = hop,
             .first = batch_.is_first(hop) && i == 0,
             .last = batch_.is_last(hop) && i + 1 == parts,
             .first_sequence = part.first_sequence,
             .sequences = part.sequences,
             .pairs = pairs,
             .k = part_of(kv.select(0), part),
             .v = part_of(kv.select(1), part),
             .dk = sums.dk,
             .dv = sums.dv,
             .accumulate = !begins || pairs == 0,
             .tokens = {positions, part_of(documents_of(*step), part)}},
            visitor);
    }
    if (ring_.gradients) post_gradients(hop, i);
  }
}

void RingPass::run(const RingVisitor& visitor, const std::function<void()>& overlap) {
  const int size = batch_.size();
  for (int hop = 0; hop < size; ++hop) {
    const RingStep* step = batch_.round(hop).step;
    const Span span(step ? stream_.trace() : nullptr, "hop",
                    {{"hop", hop},
                     {"owner", step ? step->owner : -1},
                     {"tokens", step ? batch_.sequences() * batch_.tokens_of(step->owner) : 0}});
    if (hop > 0) wait(*ring_.keys, arriving_, hop);
    if (hop + 1 < size) post_keys(hop + 1);
    if (backward_) {
      backward_hop(hop, visitor);
    } else if (step) {
      forward_hop(*step, visitor);
    }
  }
  if (overlap) overlap();
  for (std::size_t i = 0; i < gradient_rounds_.size(); ++i) finish_gradients(size, i);
  if (size > 1) wait(*ring_.keys, departing_, size);
}

}  // namespace ringtrain
