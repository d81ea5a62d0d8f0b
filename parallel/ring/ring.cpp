#include "parallel/ring/ring.h"

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <numeric>
#include <utility>

#include "framework/profile/stream_clock.h"
#include "framework/profile/trace.h"
#include "kernels/elementwise.h"
#include "parallel/ring/ring_parts.h"

namespace ringtrain {

// Messages move in rounds, one a hop, and in a round a pair of ranks has at most one message of a kind (and of a part,
// for gradients), so both sides post in the same order. In round h a rank posts the keys and values for hop h + 1,
// computes hop h, part by part, and after each part posts its gradients (to the right or to the owner) together with
// those of the same part that it continues at hop h + 1. What it waits for in part p of round h, its peers post in part
// p of their round h - 1, whatever they compute: by induction nothing waits in a circle.

namespace {

/// Events kept before those of passes that are done are read in between: a long evaluation has many.
constexpr std::size_t many_events = 8192;
/// More tokens than there are: a block is one part.
constexpr std::int64_t whole = std::numeric_limits<std::int64_t>::max();

/// Buffers of a hop alternate: hop h > 0 lives in buffer (h - 1) % 2, so a ring of two needs one.
constexpr std::size_t buffer_of(int hop) {
  return static_cast<std::size_t>((hop - 1) % 2);
}
int block_buffers(int ring_size) {
  return std::min(ring_size - 1, 2);
}
/// Only a ring of three or more has runs of hops that start away from the owner, who adds them.
bool has_return_buffer(int ring_size) {
  return ring_size > 2;
}

Shape block_shape(std::int64_t B, std::int64_t T, const RingCapacity& capacity) {
  return {2, B, T, capacity.G, capacity.D};
}
TensorView half(const TensorView& pair, std::int64_t which) {
  return pair.rows(which, which + 1).reshape({pair.dim(1), pair.dim(2), pair.dim(3), pair.dim(4)});
}

/// The gradients of a part of a block: dk and dv [sequences, tokens, G, D] one after the other (all of a block) or not.
struct PartGradients {
  TensorView dk, dv;
  TensorView both;  // if they are

  /// What one message each carries.
  std::vector<TensorView> messages() const {
    return both.empty() ? std::vector<TensorView>{dk, dv} : std::vector<TensorView>{both};
  }
};

}  // namespace

struct Ring::State {
  RingCapacity capacity;
  int size = 1, rank = 0;
  std::vector<Tensor> blocks, documents, gradients;  // double buffers
  Tensor returned;                                   // gradients that came back to their owner and are to be added
  std::unique_ptr<Communicator> key_ranks, gradient_ranks;
  std::int64_t min_part = 1;  // tokens
  RingLoad load;

  // Of the micro-batch.
  std::int64_t B = 0;
  AttentionMask mask;
  std::vector<SegmentList> segments;             // by rank
  std::vector<DocumentStarts> starts;            // by sequence; none: one document each
  std::vector<std::int64_t> tokens;              // by rank
  std::vector<RingPart> parts;                   // of every block
  std::vector<std::vector<std::int64_t>> pairs;  // by hop and part; none before the block is met
  struct Round {
    const RingStep* step = nullptr;
    const RingDelivery* delivery = nullptr;
    const RingReturn* returned = nullptr;
  };
  std::vector<Round> rounds;        // by hop; one more than there are hops
  int first_hop = 0, last_hop = 0;  // at which this rank meets a block

  // Of the pass.
  int layer = 0;
  bool backward = false;
  TensorView own_kv, own_documents, own_dkv;
  std::vector<Request> arriving;   // keys and values for the next hop, and what is sent on for it
  std::vector<Request> departing;  // own block to starts of runs: not waited for before the pass ends
  struct GradientRound {
    std::vector<Request> requests = {};
    const RingReturn* returned = nullptr;  // among them
  };
  std::vector<GradientRound> gradient_rounds;  // by part: the last one

  // Communicators go first: they take back what an exception left under way in the buffers.
  ~State() {
    key_ranks.reset();
    gradient_ranks.reset();
  }

  const Round& round(int hop) const { return rounds[static_cast<std::size_t>(hop)]; }
  /// Return B * T of the largest shard.
  std::int64_t max_batch_tokens() const { return B * longest(); }
  std::int64_t longest() const { return *std::max_element(tokens.begin(), tokens.end()); }
  std::int64_t tokens_of(int owner) const { return tokens[static_cast<std::size_t>(owner)]; }
  const SegmentList& segments_of(int owner) const { return segments[static_cast<std::size_t>(owner)]; }
  RingPart part_of_block(int owner, std::size_t part) const { return part_of_shard(parts[part], tokens_of(owner)); }
  SegmentList segments_of(int owner, const RingPart& part) const {
    return segments_of_range(segments_of(owner), part.first_token, part.first_token + part.tokens);
  }
  /// Return the pairs of each part of the block that is met now.
  std::span<const std::int64_t> pairs_of(const RingStep& step) {
    std::vector<std::int64_t>& known = pairs[static_cast<std::size_t>(step.hop)];
    for (std::size_t i = known.size(); i < parts.size(); ++i) {
      const RingPart part = part_of_block(step.owner, i);
      const std::span all(starts);
      const auto own = all.empty() ? all
                                   : all.subspan(static_cast<std::size_t>(part.first_sequence),
                                                 static_cast<std::size_t>(part.sequences));
      known.push_back(visible_pairs(mask, segments_of(rank), segments_of(step.owner, part), part.sequences, own));
    }
    return known;
  }
  TensorView kv_of(const RingStep& step) const {
    if (step.hop == 0) return own_kv;
    return blocks[buffer_of(step.hop)].view().prefix(block_shape(B, tokens_of(step.owner), capacity));
  }
  TensorView documents_of(const RingStep& step) const {
    if (step.hop == 0 || own_documents.empty()) return own_documents;
    return documents[buffer_of(step.hop)].view().prefix({B, tokens_of(step.owner)});
  }
  /// Return a part of x [2, B, T, G, D], of T tokens.
  PartGradients part_of_pair(const TensorView& x, std::size_t part) const {
    const RingPart own = part_of_shard(parts[part], x.dim(2));
    return {part_of(half(x, 0), own), part_of(half(x, 1), own), parts.size() == 1 ? x : TensorView{}};
  }
  PartGradients returned_gradients(const RingReturn& of, std::size_t part) const {
    return part_of_pair(of.replaces ? own_dkv : returned.view().prefix(own_dkv.shape), part);
  }
  /// Return the gradients of a part of the block met at a step. In a buffer a part's place is that of the largest
  /// shard.
  PartGradients gradients_of(const RingStep& step, std::size_t part) const {
    if (step.hop == 0) return part_of_pair(own_dkv, part);
    const RingPart own = part_of_block(step.owner, part);
    const std::int64_t begin = 2 * (own.first_sequence * longest() + own.first_token) * capacity.G * capacity.D;
    const Shape pair{2, own.sequences, own.tokens, capacity.G, capacity.D};
    const TensorView both = gradients[buffer_of(step.hop)].view().flat(begin, begin + pair.numel()).reshape(pair);
    return {half(both, 0), half(both, 1), parts.size() == 1 ? both : TensorView{}};
  }

  // Times of a GPU are known after the work that they are of: until then they wait here.
  struct Timed {
    bool backward, is_wait;
    int hop;
    StreamClock::Event from, to;
  };
  StreamClock clock;
  std::vector<Timed> timed;

  RingPassLoad& load_of(bool backward_pass) { return backward_pass ? load.backward : load.forward; }
  /// Adds all times to the load; they have passed.
  void read_times() {
    for (const Timed& time : timed) {
      RingPassLoad& of = load_of(time.backward);
      (time.is_wait ? of.hop_waits[static_cast<std::size_t>(time.hop)] : of.compute_seconds) +=
          clock.seconds(time.from, time.to);
    }
    timed.clear();
    clock.clear();
  }
  /// Runs body() and times what it gave to the stream. A ring of one has nobody to compare with.
  template <class Body>
  void time(Stream& stream, bool is_wait, int hop, const Body& body) {
    if (size == 1) return body();
    const StreamClock::Event from = clock.record(stream);
    body();
    timed.push_back({backward, is_wait, hop, from, clock.record(stream)});
  }
  void reset_load() {
    for (RingPassLoad* one : {&load.forward, &load.backward}) {
      one->pairs = 0;
      one->compute_seconds = 0;
      one->hop_waits.assign(static_cast<std::size_t>(size) + 1, 0.0);
    }
  }

  /// hop: which one cannot go on before; size: the end of the pass.
  void wait(Stream& stream, Communicator& communicator, std::vector<Request>& requests, int hop) {
    if (requests.empty()) return;
    time(stream, /*is_wait=*/true, hop, [&] {
      for (const Request request : requests) communicator.wait(request);
    });
    requests.clear();
  }

  void post_keys(int hop);
  void post_gradients(int hop, std::size_t part);
  void finish_gradients(Stream& stream, int hop, std::size_t part);
  void visit(Stream& stream, const RingBlock& block, const Visitor& visitor);
  void forward_hop(Stream& stream, const RingStep& step, const Visitor& visitor);
  void backward_hop(Stream& stream, int hop, const Visitor& visitor);
  void pass(Stream& stream, const Visitor& visitor, const std::function<void()>& overlap);
  void run(Stream& stream, const Visitor& visitor, const std::function<void()>& overlap);
};

/// Posts what this rank sends and receives so that blocks are where hop `hop` needs them.
void Ring::State::post_keys(int hop) {
  const RingStep* before = round(hop - 1).step;
  const RingStep* next = round(hop).step;
  const int to = before ? before->forward_to : no_peer, from = next ? next->receive_from : no_peer;
  const CallSite site{.operation = "ring keys and values", .layer = layer, .hop = hop};
  const CallSite documents_site{.operation = "ring document ids", .layer = layer, .hop = hop};
  const auto exchange = [&](std::vector<Request>& requests, const RingStep* sent, int receiver,
                            const RingStep* received, int sender) {
    requests.push_back(key_ranks->exchange(receiver == no_peer ? TensorView{} : kv_of(*sent), receiver,
                                           sender == no_peer ? TensorView{} : kv_of(*received), sender, site));
    if (own_documents.empty()) return;
    requests.push_back(key_ranks->exchange(receiver == no_peer ? TensorView{} : documents_of(*sent), receiver,
                                           sender == no_peer ? TensorView{} : documents_of(*received), sender,
                                           documents_site));
  };
  post_together(*key_ranks, [&] {
    // What is sent comes first: see Communicator::exchange.
    if (const RingDelivery* delivery = round(hop).delivery) {
      exchange(departing, round(0).step, delivery->to, nullptr, no_peer);
    }
    exchange(arriving, before, to, next, from);
  });
}

/// Posts a part's gradients: of the block met at `hop`, of that which this rank continues at the next, and of its own
/// that return.
void Ring::State::post_gradients(int hop, std::size_t part) {
  const RingStep* step = round(hop).step;
  const RingStep* next = round(hop + 1).step;
  const int to = step ? step->gradient_to : no_peer, from = next ? next->gradient_from : no_peer;
  GradientRound& of = gradient_rounds[part];
  const auto messages = [&](const RingStep* block, int peer) {
    return peer == no_peer ? std::vector<TensorView>{} : gradients_of(*block, part).messages();
  };
  const auto exchange = [&](const std::vector<TensorView>& sent, int receiver, const std::vector<TensorView>& received,
                            int sender) {
    const CallSite site{.operation = "ring gradients", .layer = layer, .hop = hop};
    for (std::size_t i = 0; i < std::max(sent.size(), received.size()); ++i) {
      of.requests.push_back(gradient_ranks->exchange(sent.empty() ? TensorView{} : sent[i], receiver,
                                                     received.empty() ? TensorView{} : received[i], sender, site));
    }
  };
  of.returned = round(hop).returned;
  post_together(*gradient_ranks, [&] {
    exchange(messages(step, to), to, messages(next, from), from);
    if (of.returned) exchange({}, no_peer, returned_gradients(*of.returned, part).messages(), of.returned->from);
  });
}

/// Ends the part's round before `hop`.
void Ring::State::finish_gradients(Stream& stream, int hop, std::size_t part) {
  GradientRound& of = gradient_rounds[part];
  if (gradient_ranks) wait(stream, *gradient_ranks, of.requests, hop);
  if (of.returned && !of.returned->replaces) {
    const PartGradients own = part_of_pair(own_dkv, part), came = returned_gradients(*of.returned, part);
    add(stream, own.dk, came.dk);
    add(stream, own.dv, came.dv);
  }
  of.returned = nullptr;
}

void Ring::State::visit(Stream& stream, const RingBlock& block, const Visitor& visitor) {
  time(stream, /*is_wait=*/false, block.hop, [&] { visitor(block); });
  load_of(backward).pairs += block.pairs;
}

void Ring::State::forward_hop(Stream& stream, const RingStep& step, const Visitor& visitor) {
  const TensorView kv = kv_of(step);
  const std::span<const std::int64_t> counts = pairs_of(step);
  visit(stream,
        {.owner = step.owner,
         .hop = step.hop,
         .first = step.hop == first_hop,
         .last = step.hop == last_hop,
         .sequences = B,
         .pairs = std::accumulate(counts.begin(), counts.end(), std::int64_t{0}),
         .k = half(kv, 0),
         .v = half(kv, 1),
         .tokens = {segments_of(step.owner), documents_of(step)}},
        visitor);
}

void Ring::State::backward_hop(Stream& stream, int hop, const Visitor& visitor) {
  const RingStep* step = round(hop).step;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    finish_gradients(stream, hop, i);
    if (step) {
      const RingPart part = part_of_block(step->owner, i);
      const SegmentList positions = segments_of(step->owner, part);
      const TensorView kv = kv_of(*step);
      const PartGradients sums = gradients_of(*step, i);
      if (step->gradient_from == no_peer) {
        for (const TensorView& piece : sums.messages()) fill(stream, piece, 0.0);
      }
      visit(stream,
            {.owner = step->owner,
             .hop = hop,
             .first = hop == first_hop && i == 0,
             .last = hop == last_hop && i + 1 == parts.size(),
             .first_sequence = part.first_sequence,
             .sequences = part.sequences,
             .pairs = pairs_of(*step)[i],
             .k = part_of(half(kv, 0), part),
             .v = part_of(half(kv, 1), part),
             .dk = sums.dk,
             .dv = sums.dv,
             .tokens = {positions, part_of(documents_of(*step), part)}},
            visitor);
    }
    if (size > 1) post_gradients(hop, i);
  }
}

void Ring::State::pass(Stream& stream, const Visitor& visitor, const std::function<void()>& overlap) {
  for (int hop = 0; hop < size; ++hop) {
    const RingStep* step = round(hop).step;
    const Span span(
        step ? stream.trace() : nullptr, "hop",
        {{"hop", hop}, {"owner", step ? step->owner : -1}, {"tokens", step ? B * tokens_of(step->owner) : 0}});
    if (hop > 0) wait(stream, *key_ranks, arriving, hop);
    if (hop + 1 < size) post_keys(hop + 1);
    if (backward) {
      backward_hop(stream, hop, visitor);
    } else if (step) {
      forward_hop(stream, *step, visitor);
    }
  }
  if (overlap) overlap();
  if (backward) {
    for (std::size_t i = 0; i < parts.size(); ++i) finish_gradients(stream, size, i);
  }
  if (size > 1) wait(stream, *key_ranks, departing, size);
}

/// A pass that fails ends all ranks before the caller can free what they are reading.
void Ring::State::run(Stream& stream, const Visitor& visitor, const std::function<void()>& overlap) {
  ensure(!rounds.empty(), "Ring::begin comes before the first pass");
  const Span span(stream.trace(), backward ? "ring backward" : "ring forward", {{"layer", layer}});
  try {
    pass(stream, visitor, overlap);
  } catch (const Error& error) {
    if (key_ranks) key_ranks->abort(error);
    throw;
  } catch (const std::exception& error) {
    if (key_ranks) key_ranks->abort(Error(ExitCode::internal, error.what()));
    throw;
  }
}

Ring::Ring(Allocator& allocator, Communicator* sequence_group, int ring_size, const RingCapacity& capacity)
    : state_(std::make_unique<State>()) {
  ensure(sequence_group ? sequence_group->size() == ring_size : ring_size == 1 || allocator.planning(),
         "the ring's communicator fits ring_size");
  State& s = *state_;
  s.capacity = capacity;
  s.size = ring_size;
  s.rank = sequence_group ? sequence_group->rank() : 0;
  s.min_part = capacity.min_part > 0 ? capacity.min_part : default_min_part(allocator.device(), capacity.G);
  s.reset_load();
  if (ring_size == 1) return;
  if (sequence_group) {
    s.key_ranks = sequence_group->split(0);
    s.gradient_ranks = sequence_group->split(0);
  }
  const Shape block = block_shape(1, capacity.tokens, capacity);
  const Shape gradients = block_shape(1, capacity.gradient_tokens, capacity);
  const DType sums = accumulator(capacity.dtype);
  const auto make = [&](const std::string& name, DType dtype, const Shape& shape) {
    return allocator.make(Tag::ring, name, dtype, shape);
  };
  for (int i = 0; i < block_buffers(ring_size); ++i) {
    s.blocks.push_back(make(fmt::format("ring keys and values {}", i), capacity.dtype, block));
    if (capacity.documents) {
      s.documents.push_back(make(fmt::format("ring document ids {}", i), DType::int32, {capacity.tokens}));
    }
    if (capacity.backward) s.gradients.push_back(make(fmt::format("ring gradients {}", i), sums, gradients));
  }
  if (capacity.backward && has_return_buffer(ring_size)) s.returned = make("ring gradients returned", sums, gradients);
}

Ring::~Ring() = default;

void Ring::begin(const AttentionMask& mask, std::span<const ShardExtents> extents,
                 std::span<const SegmentList> segments, std::int64_t sequences,
                 std::span<const DocumentStarts> documents) {
  State& s = *state_;
  const auto N = static_cast<std::size_t>(s.size);
  ensure(N == 1 || s.key_ranks, "a ring that was only planned does not run");
  ensure(extents.size() == N && segments.size() == N, "the shards of all ring ranks");
  if (s.clock.size() > many_events && s.clock.passed()) s.read_times();
  s.B = sequences;
  s.mask = mask;
  s.pairs.assign(N, {});
  s.segments.assign(segments.begin(), segments.end());
  s.starts.assign(documents.begin(), documents.end());
  s.tokens.clear();
  for (const SegmentList& list : s.segments) s.tokens.push_back(token_count(list));
  const auto largest = std::max_element(s.tokens.begin(), s.tokens.end()) - s.tokens.begin();
  s.parts = ring_parts(s.segments[static_cast<std::size_t>(largest)], sequences, N == 1 ? whole : s.min_part);
  s.gradient_rounds.assign(s.parts.size(), {});
  ensure(N == 1 || s.max_batch_tokens() <= s.capacity.tokens, "a micro-batch within the ring's capacity");

  plan_ = ring_plan(ring_needs(mask, extents), s.size, s.rank);
  s.rounds.assign(N + 1, {});
  for (const RingStep& step : plan_.steps) s.rounds[static_cast<std::size_t>(step.hop)].step = &step;
  s.first_hop = plan_.steps.empty() ? 0 : plan_.steps.front().hop;
  s.last_hop = plan_.steps.empty() ? 0 : plan_.steps.back().hop;
  for (const RingDelivery& delivery : plan_.deliveries) {
    s.rounds[static_cast<std::size_t>(delivery.hop)].delivery = &delivery;
  }
  for (const RingReturn& back : plan_.returns) s.rounds[static_cast<std::size_t>(back.hop)].returned = &back;
}

void Ring::forward(Stream& stream, int layer, const TensorView& kv, const TensorView& documents,
                   const Visitor& visitor) {
  state_->layer = layer;
  state_->backward = false;
  state_->own_kv = kv;
  state_->own_documents = documents;
  state_->own_dkv = {};
  state_->run(stream, visitor, {});
}

void Ring::backward(Stream& stream, int layer, const TensorView& kv, const TensorView& documents, const TensorView& dkv,
                    const Visitor& visitor, const std::function<void()>& overlap) {
  ensure(state_->size == 1 ||
             (state_->capacity.backward && state_->max_batch_tokens() <= state_->capacity.gradient_tokens),
         "a micro-batch within the ring's gradient buffers");
  state_->layer = layer;
  state_->backward = true;
  state_->own_kv = kv;
  state_->own_documents = documents;
  state_->own_dkv = dkv;
  state_->run(stream, visitor, overlap);
}

std::size_t Ring::ring_bytes(const RingCapacity& capacity, int ring_size) {
  if (ring_size == 1) return 0;
  const auto rounded = [](std::int64_t bytes) {  // as the allocator does
    return std::max<std::size_t>(64, (static_cast<std::size_t>(bytes) + 63) / 64 * 64);
  };
  const auto block = [&](std::int64_t tokens, DType dtype) {
    return rounded(2 * tokens * capacity.G * capacity.D * static_cast<std::int64_t>(size_of(dtype)));
  };
  const std::size_t ids = rounded(capacity.tokens * static_cast<std::int64_t>(size_of(DType::int32)));
  const auto buffers = static_cast<std::size_t>(block_buffers(ring_size));
  std::size_t bytes = buffers * block(capacity.tokens, capacity.dtype);
  if (capacity.documents) bytes += buffers * ids;
  if (capacity.backward) {
    bytes += (buffers + (has_return_buffer(ring_size) ? 1 : 0)) *
             block(capacity.gradient_tokens, accumulator(capacity.dtype));
  }
  return bytes;
}

RingLoad Ring::take_load() {
  state_->clock.wait();
  state_->read_times();
  RingLoad load = state_->load;
  state_->reset_load();
  return load;
}

}  // namespace ringtrain
