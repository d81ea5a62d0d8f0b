#include "parallel/ring/ring_pass.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/profile/trace.h"
#include "kernels/elementwise.h"

namespace ringtrain {

namespace {

// Messages move in rounds, one per hop, and in a round a pair of ranks has at most one message of a kind (and of a
// part, for gradients), so both sides post in the same order. In round h, a rank posts the keys and values for hop h +
// 1, computes hop h, part by part, and after each part posts its gradients (to the right or to the owner) together with
// those of the same part that it continues at hop h + 1. The messages for which it waits in part p of round h are
// posted by its peers in part p of their round h - 1, whatever they compute. By induction, there is no circular wait.

class RingPass {
 public:
  RingPass(Stream& stream, int layer, const RingResources& ring, const RingTensors& tensors)
      : stream_(stream),
        layer_(layer),
        ring_(ring),
        batch_(ring.batch),
        tensors_(tensors),
        gradient_rounds_(tensors.backward ? ring.batch.parts().size() : 0) {}

  /// Passes every block to the visitor, in the order of hops. overlap: runs while the last gradients return; may be
  /// empty. Throws the first error of any rank.
  void run(const RingVisitor& visitor, const std::function<void()>& overlap) {
    const int size = batch_.size();
    for (int hop = 0; hop < size; ++hop) {
      const std::optional<RingStep>& step = batch_.plan()[hop].step;
      const Span span(step ? stream_.trace() : nullptr, "hop",
                      {{"hop", hop},
                       {"owner", step ? step->owner : -1},
                       {"tokens", step ? batch_.sequences() * tokens_of(*step).tokens : 0}});
      if (hop > 0) wait(*ring_.keys, arriving_, hop);
      if (hop + 1 < size) post_keys(hop + 1);
      if (tensors_.backward) {
        backward_hop(hop, visitor);
      } else if (step) {
        forward_hop(*step, visitor);
      }
    }
    if (overlap) overlap();
    for (std::size_t i = 0; i < gradient_rounds_.size(); ++i) finish_gradients(size, i);
    if (size > 1) wait(*ring_.keys, departing_, size);
  }

 private:
  /// The gradients of a part of a block: dk and dv [sequences, tokens, G, D].
  struct PartGradients {
    TensorView dk, dv;
    TensorView both;  // if they are contiguous: all of a block
    /// Returns the contents of the messages.
    std::vector<TensorView> messages() const {
      return both.empty() ? std::vector<TensorView>{dk, dv} : std::vector<TensorView>{both};
    }
  };
  struct GradientRound {
    std::vector<Request> requests = {};
    const RingHop* returns = nullptr;  // the hop whose gradients return among them,
    RingPart tokens = {};              // and the tokens of these
  };
  /// One side of an exchange: its peer, and the contents of each message.
  struct Side {
    int peer = no_peer;
    std::vector<TensorView> messages = {};
  };

  /// Returns the tokens of the block that is met at a step.
  const RingPart& tokens_of(const RingStep& step) const { return batch_.traveling(step.hop).of_step; }
  TensorView kv_of(const RingStep& step) const {
    if (step.hop == 0) return tensors_.kv;
    return ring_.buffers.keys_and_values(step.hop, batch_.sequences(), tokens_of(step).tokens);
  }

  TensorView documents_of(const RingStep& step) const {
    if (step.hop == 0 || tensors_.documents.empty()) return tensors_.documents;
    return ring_.buffers.documents(step.hop, batch_.sequences(), tokens_of(step).tokens);
  }

  /// Returns the messages for these tokens of an owner's block, of which kv [2, B, T, G, D] has all tokens or only
  /// these: keys and values together if all tokens are sent, otherwise separate on both sides.
  std::vector<TensorView> kv_messages(const TensorView& kv, const RingPart& tokens, int owner) const {
    if (tokens.tokens == batch_.tokens_of(owner)) return {kv};
    return {part_of(kv.select(0), tokens), part_of(kv.select(1), tokens)};
  }

  /// Returns some tokens of a pair [2, B, T, G, D].
  PartGradients part_of_pair(const TensorView& pair, const RingPart& tokens) const {
    const bool all = batch_.parts().size() == 1 && tokens.tokens == pair.dim(2);
    return {part_of(pair.select(0), tokens), part_of(pair.select(1), tokens), all ? pair : TensorView{}};
  }

  /// Returns the gradients of a part of the block met at a step. In a buffer, a part has the offset that it has for the
  /// largest shard.
  PartGradients gradients_of(const RingStep& step, std::size_t part) const {
    const RingPart tokens = batch_.part_of_traveling(tokens_of(step), part);
    if (step.hop == 0) return part_of_pair(tensors_.dkv, tokens);
    const auto [G, D] = std::pair(ring_.buffers.capacity().G, ring_.buffers.capacity().D);
    const std::int64_t begin = 2 * (tokens.first_sequence * batch_.longest() + tokens.first_token) * G * D;
    const TensorView both = ring_.buffers.gradients(step.hop, begin, {2, tokens.sequences, tokens.tokens, G, D});
    const bool all = batch_.parts().size() == 1 && tokens.tokens == batch_.tokens_of(step.owner);
    return {both.select(0), both.select(1), all ? both : TensorView{}};
  }

  /// Returns the gradients to send: of this rank's own block, those of the tokens that are sent along the run next to
  /// it.
  std::vector<TensorView> leaving_gradients(const RingStep& step, std::size_t part) const {
    if (step.hop > 0) return gradients_of(step, part).messages();
    return part_of_pair(tensors_.dkv, batch_.part_of_traveling(batch_.traveling(1).of_delivery, part)).messages();
  }

  PartGradients returned_gradients(const RingHop& hop, const RingPart& tokens) const {
    return part_of_pair(hop.return_replaces ? tensors_.dkv : ring_.buffers.returned(tensors_.dkv.shape), tokens);
  }

  /// Posts one exchange per pair of messages; the number is that of the side with more messages.
  void exchange(Communicator& communicator, std::vector<Request>& requests, const Side& send, const Side& receive,
                const CallSite& site) const {
    const auto& [to, sent] = send;
    const auto& [from, received] = receive;
    for (std::size_t i = 0; i < std::max(sent.size(), received.size()); ++i) {
      const bool sends = i < sent.size() && sent[i].numel() > 0;
      const bool receives = i < received.size() && received[i].numel() > 0;
      if (!sends && !receives) continue;  // nothing of this part is sent
      requests.push_back(communicator.exchange(sends ? sent[i] : TensorView{}, sends ? to : no_peer,
                                               receives ? received[i] : TensorView{}, receives ? from : no_peer, site));
    }
  }

  /// Posts this rank's sends and receives of the blocks that hop `hop` needs.
  void post_keys(int hop) {
    const RingHop& here = batch_.plan()[hop];
    const std::optional<RingStep>&before = batch_.plan()[hop - 1].step, &next = here.step;
    // messages(step, tokens): the messages for these tokens of the block that is met at a step.
    const auto post = [&](const CallSite& site, const auto& messages) {
      Side delivered, passed, received;
      if (const int to = here.deliver_to; to != no_peer) {
        delivered = {to, messages(*batch_.plan()[0].step, batch_.traveling(hop).of_delivery)};
      }
      if (before && before->forward_to != no_peer) passed = {before->forward_to, messages(*before, tokens_of(*before))};
      if (next && next->receive_from != no_peer) received = {next->receive_from, messages(*next, tokens_of(*next))};
      exchange(*ring_.keys, departing_, delivered, {}, site);  // sends come first: see Communicator::exchange
      exchange(*ring_.keys, arriving_, passed, received, site);
    };
    post_together(*ring_.keys, [&] {
      post({"ring keys and values", layer_, hop},
           [&](const RingStep& step, const RingPart& tokens) { return kv_messages(kv_of(step), tokens, step.owner); });
      if (tensors_.documents.empty()) return;
      post({"ring document ids", layer_, hop}, [&](const RingStep& step, const RingPart& tokens) {
        return std::vector{part_of(documents_of(step), tokens)};
      });
    });
  }

  /// Posts a part's gradients: those of the block met at `hop`, those of the block that this rank continues at the next
  /// hop, and the returning ones of its own block.
  void post_gradients(int hop, std::size_t part) {
    const RingHop& here = batch_.plan()[hop];
    const std::optional<RingStep>&step = here.step, &next = batch_.plan()[hop + 1].step;
    GradientRound& round = gradient_rounds_[part];
    const CallSite site{.operation = "ring gradients", .layer = layer_, .hop = hop};
    round.returns = here.return_from != no_peer ? &here : nullptr;
    if (round.returns) round.tokens = batch_.part_of_traveling(batch_.traveling(hop).of_return, part);
    post_together(*ring_.gradients, [&] {
      Side sent, received;
      if (step && step->gradient_to != no_peer) sent = {step->gradient_to, leaving_gradients(*step, part)};
      if (next && next->gradient_from != no_peer) {
        received = {next->gradient_from, gradients_of(*next, part).messages()};
      }
      exchange(*ring_.gradients, round.requests, sent, received, site);
      if (!round.returns) return;
      exchange(*ring_.gradients, round.requests, {},
               {here.return_from, returned_gradients(here, round.tokens).messages()}, site);
    });
  }

  /// Ends the part's round before `hop`.
  void finish_gradients(int hop, std::size_t part) {
    GradientRound& round = gradient_rounds_[part];
    if (ring_.gradients) wait(*ring_.gradients, round.requests, hop);
    if (round.returns && !round.returns->return_replaces) {
      const PartGradients sums = part_of_pair(tensors_.dkv, round.tokens);
      const PartGradients returned = returned_gradients(*round.returns, round.tokens);
      add(stream_, sums.dk, returned.dk);
      add(stream_, sums.dv, returned.dv);
    }
    round.returns = nullptr;
  }

  /// hop: the hop that cannot continue before; the ring's size: the end of the pass.
  void wait(Communicator& communicator, std::vector<Request>& requests, int hop) {
    if (requests.empty()) return;
    ring_.times.wait(stream_, tensors_.backward, hop, [&] {
      for (const Request request : requests) communicator.wait(request);
    });
    requests.clear();
  }

  void visit(const RingBlock& block, const RingVisitor& visitor) {
    ring_.times.visit(stream_, tensors_.backward, block.pairs, [&] { visitor(block); });
  }

  void forward_hop(const RingStep& step, const RingVisitor& visitor) {
    const TensorView kv = kv_of(step);
    const SegmentList positions = batch_.segments_of_part(step.owner, tokens_of(step));
    const std::span<const std::int64_t> counts = batch_.pairs_of(step);
    visit({.owner = step.owner,
           .hop = step.hop,
           .first = step.hop == 0,
           .last = step.hop == batch_.last_hop(),
           .sequences = batch_.sequences(),
           .pairs = std::accumulate(counts.begin(), counts.end(), std::int64_t{0}),
           .k = kv.select(0),
           .v = kv.select(1),
           .tokens = {positions, documents_of(step)}},
          visitor);
  }

  void backward_hop(int hop, const RingVisitor& visitor) {
    const std::optional<RingStep>& step = batch_.plan()[hop].step;
    const std::size_t parts = batch_.parts().size();
    for (std::size_t i = 0; i < parts; ++i) {
      finish_gradients(hop, i);
      if (step) {
        const RingPart part = batch_.part_of_traveling(tokens_of(*step), i);
        const SegmentList positions = batch_.segments_of_part(step->owner, part);
        RingPart local_part = part;  // among the tokens that are here
        local_part.first_token = part.tokens == 0 ? 0 : part.first_token - tokens_of(*step).first_token;
        const TensorView kv = kv_of(*step);
        const PartGradients sums = gradients_of(*step, i);
        const std::int64_t pairs = batch_.pairs_of(*step)[i];
        const bool begins = step->gradient_from == no_peer;
        if (begins && pairs == 0) {  // nobody computes anything
          for (const TensorView& piece : sums.messages()) fill(stream_, piece, 0.0);
        }
        visit({.owner = step->owner,
               .hop = hop,
               .first = hop == 0 && i == 0,
               .last = hop == batch_.last_hop() && i + 1 == parts,
               .first_sequence = part.first_sequence,
               .sequences = part.sequences,
               .pairs = pairs,
               .k = part_of(kv.select(0), local_part),
               .v = part_of(kv.select(1), local_part),
               .dk = sums.dk,
               .dv = sums.dv,
               .accumulate = !begins || pairs == 0,
               .tokens = {positions, part_of(documents_of(*step), local_part)}},
              visitor);
      }
      if (ring_.gradients) post_gradients(hop, i);
    }
  }

  Stream& stream_;
  const int layer_;
  const RingResources ring_;
  RingBatch& batch_;
  const RingTensors tensors_;
  std::vector<Request> arriving_;               // keys and values for the next hop, and those passed on for it
  std::vector<Request> departing_;              // own block to starts of runs: only waited for at the end of the pass
  std::vector<GradientRound> gradient_rounds_;  // by part: the last one
};

}  // namespace

void run_ring_pass(Stream& stream, int layer, const RingResources& ring, const RingTensors& tensors,
                   const RingVisitor& visitor, const std::function<void()>& overlap) {
  RingPass(stream, layer, ring, tensors).run(visitor, overlap);
}

}  // namespace ringtrain
