#include "parallel/ring.h"

#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <utility>

#include "framework/stream_clock.h"
#include "kernels/elementwise.h"

namespace ringtrain {

// Messages move in rounds, one a hop, and in a round a pair of ranks has at most one message of a kind, so both sides
// post in the same order. In round h a rank posts the keys and values for hop h + 1, computes hop h, and posts the
// gradients of hop h (to the right or home) together with those it continues at hop h + 1. What it waits for in round
// h, its peers post in their round h - 1, whatever they compute: by induction nothing waits in a circle.

namespace {

/// Moments kept before those of passes that are done are read in between: a long evaluation has many.
constexpr std::size_t many_moments = 8192;

/// Buffers of a hop alternate: hop h > 0 lives in buffer (h - 1) % 2, so a ring of two needs one.
constexpr std::size_t buffer_of(int hop) {
  return static_cast<std::size_t>((hop - 1) % 2);
}
int block_buffers(int ring_size) {
  return std::min(ring_size - 1, 2);
}
/// Only a ring of three or more has legs that start away from the owner and are added at home.
bool has_home_buffer(int ring_size) {
  return ring_size > 2;
}

Shape block_shape(std::int64_t B, std::int64_t T, const RingCapacity& capacity) {
  return {2, B, T, capacity.G, capacity.D};
}
TensorView half(const TensorView& pair, std::int64_t which) {
  return pair.rows(which, which + 1).reshape({pair.dim(1), pair.dim(2), pair.dim(3), pair.dim(4)});
}

}  // namespace

struct Ring::State {
  static constexpr std::int64_t unknown = -1;

  RingCapacity capacity;
  int size = 1, rank = 0;
  std::vector<Tensor> blocks, documents, gradients;  // double buffers
  Tensor home;                                       // gradients that came home and are to be added
  std::unique_ptr<Communicator> key_ranks, gradient_ranks;
  RingLoad load;

  // Of the micro-batch.
  std::int64_t B = 0;
  AttentionMask mask;
  std::vector<SegmentList> segments;   // by rank
  std::vector<DocumentStarts> starts;  // by sequence; none: one document each
  std::vector<std::int64_t> tokens;    // by rank
  std::vector<std::int64_t> pairs;     // by hop; unknown before its block is met
  struct Round {
    const RingStep* step = nullptr;
    const RingDelivery* delivery = nullptr;
    const RingReturn* home = nullptr;
  };
  std::vector<Round> rounds;        // by hop; one more than there are hops
  int first_hop = 0, last_hop = 0;  // at which this rank meets a block

  // Of the pass.
  int layer = 0;
  bool backward = false;
  TensorView own_kv, own_documents, own_dkv;
  std::vector<Ticket> arriving;           // keys and values for the next hop, and what is sent on for it
  std::vector<Ticket> departing;          // own block to starts of legs: not waited for before the pass ends
  std::vector<Ticket> gradient_tickets;   // of the last round
  const RingReturn* returning = nullptr;  // among them

  // Communicators go first: they take back what an exception left under way in the buffers.
  ~State() {
    key_ranks.reset();
    gradient_ranks.reset();
  }

  const Round& round(int hop) const { return rounds[static_cast<std::size_t>(hop)]; }
  /// Return B * T of the largest shard.
  std::int64_t most_tokens() const { return B * *std::max_element(tokens.begin(), tokens.end()); }
  std::int64_t tokens_of(int owner) const { return tokens[static_cast<std::size_t>(owner)]; }
  AttentionTokens places_of(const RingStep& step) const {
    return {segments[static_cast<std::size_t>(step.owner)], documents_of(step)};
  }
  /// Return the pairs of the block that is met now.
  std::int64_t pairs_of(const RingStep& step) {
    std::int64_t& known = pairs[static_cast<std::size_t>(step.hop)];
    if (known == unknown) {
      const auto of = [&](int owner) -> const SegmentList& { return segments[static_cast<std::size_t>(owner)]; };
      known = visible_pairs(mask, of(rank), of(step.owner), B, starts);
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
  TensorView gradients_of(const RingStep& step) const {
    if (step.hop == 0) return own_dkv;
    return gradients[buffer_of(step.hop)].view().prefix(block_shape(B, tokens_of(step.owner), capacity));
  }

  // Times of a GPU are known behind the work that they are of: until then they wait here.
  struct Timed {
    bool backward, is_wait;
    int hop;
    StreamClock::Moment from, to;
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
    const StreamClock::Moment from = clock.mark(stream);
    body();
    timed.push_back({backward, is_wait, hop, from, clock.mark(stream)});
  }
  void reset_load() {
    for (RingPassLoad* one : {&load.forward, &load.backward}) {
      one->pairs = 0;
      one->compute_seconds = 0;
      one->hop_waits.assign(static_cast<std::size_t>(size) + 1, 0.0);
    }
  }

  /// hop: which one cannot go on before; size: the end of the pass.
  void wait(Stream& stream, Communicator& communicator, std::vector<Ticket>& tickets, int hop) {
    if (tickets.empty()) return;
    time(stream, /*is_wait=*/true, hop, [&] {
      for (const Ticket ticket : tickets) communicator.wait(ticket);
    });
    tickets.clear();
  }

  void post_keys(int hop);
  void post_gradients(int hop);
  void finish_gradients(Stream& stream, int hop);
  void visit(Stream& stream, const RingStep& step, const Visitor& visitor);
  void pass(Stream& stream, const Visitor& visitor);
  void run(Stream& stream, const Visitor& visitor);
};

/// Posts what this rank sends and receives so that blocks are where hop `hop` needs them.
void Ring::State::post_keys(int hop) {
  const RingStep* before = round(hop - 1).step;
  const RingStep* next = round(hop).step;
  const int to = before ? before->forward_to : no_peer, from = next ? next->receive_from : no_peer;
  const CallSite site{.operation = "ring keys and values", .layer = layer, .hop = hop};
  const CallSite documents_site{.operation = "ring document ids", .layer = layer, .hop = hop};
  const auto exchange = [&](std::vector<Ticket>& tickets, const RingStep* sent, int receiver, const RingStep* received,
                            int sender) {
    tickets.push_back(key_ranks->exchange(receiver == no_peer ? TensorView{} : kv_of(*sent), receiver,
                                          sender == no_peer ? TensorView{} : kv_of(*received), sender, site));
    if (own_documents.empty()) return;
    tickets.push_back(key_ranks->exchange(receiver == no_peer ? TensorView{} : documents_of(*sent), receiver,
                                          sender == no_peer ? TensorView{} : documents_of(*received), sender,
                                          documents_site));
  };
  const ExchangeGroup group(*key_ranks);
  // What is sent comes first: see Communicator::exchange.
  if (const RingDelivery* delivery = round(hop).delivery) {
    exchange(departing, round(0).step, delivery->to, nullptr, no_peer);
  }
  exchange(arriving, before, to, next, from);
}

/// Posts the gradients of the block met at `hop`, those that this rank continues at the next, and those that come home.
void Ring::State::post_gradients(int hop) {
  const RingStep* step = round(hop).step;
  const RingStep* next = round(hop + 1).step;
  const int to = step ? step->gradient_to : no_peer, from = next ? next->gradient_from : no_peer;
  const CallSite site{.operation = "ring gradients", .layer = layer, .hop = hop};
  const ExchangeGroup group(*gradient_ranks);
  gradient_tickets.push_back(gradient_ranks->exchange(to == no_peer ? TensorView{} : gradients_of(*step), to,
                                                      from == no_peer ? TensorView{} : gradients_of(*next), from,
                                                      site));
  returning = round(hop).home;
  if (returning) {
    const TensorView target = returning->replaces ? own_dkv : home.view().prefix(own_dkv.shape);
    gradient_tickets.push_back(gradient_ranks->exchange({}, no_peer, target, returning->from, site));
  }
}

/// Ends the gradients' round before `hop`.
void Ring::State::finish_gradients(Stream& stream, int hop) {
  if (gradient_ranks) wait(stream, *gradient_ranks, gradient_tickets, hop);
  if (returning && !returning->replaces) add(stream, own_dkv, home.view().prefix(own_dkv.shape));
  returning = nullptr;
}

void Ring::State::visit(Stream& stream, const RingStep& step, const Visitor& visitor) {
  const TensorView kv = kv_of(step);
  RingBlock block{.owner = step.owner,
                  .hop = step.hop,
                  .first = step.hop == first_hop,
                  .last = step.hop == last_hop,
                  .pairs = pairs_of(step),
                  .k = half(kv, 0),
                  .v = half(kv, 1),
                  .dk = {},
                  .dv = {},
                  .tokens = places_of(step)};
  if (backward) {
    const TensorView dkv = gradients_of(step);
    block.dk = half(dkv, 0);
    block.dv = half(dkv, 1);
  }
  time(stream, /*is_wait=*/false, step.hop, [&] { visitor(block); });
  load_of(backward).pairs += block.pairs;
}

void Ring::State::pass(Stream& stream, const Visitor& visitor) {
  for (int hop = 0; hop < size; ++hop) {
    const RingStep* step = round(hop).step;
    const Span span(
        step ? stream.trace() : nullptr, "hop",
        {{"hop", hop}, {"owner", step ? step->owner : -1}, {"tokens", step ? B * tokens_of(step->owner) : 0}});
    if (hop > 0) wait(stream, *key_ranks, arriving, hop);
    if (backward) finish_gradients(stream, hop);
    if (hop + 1 < size) post_keys(hop + 1);
    if (step) {
      if (backward && step->gradient_from == no_peer) fill(stream, gradients_of(*step), 0.0);
      visit(stream, *step, visitor);
    }
    if (backward && size > 1) post_gradients(hop);
  }
  if (backward) finish_gradients(stream, size);
  if (size > 1) wait(stream, *key_ranks, departing, size);
}

/// A pass that fails ends all ranks before the caller can free what they are reading.
void Ring::State::run(Stream& stream, const Visitor& visitor) {
  ensure(!rounds.empty(), "Ring::begin comes before the first pass");
  const Span span(stream.trace(), backward ? "ring backward" : "ring forward", {{"layer", layer}});
  try {
    pass(stream, visitor);
  } catch (const Error& error) {
    if (key_ranks) key_ranks->abort(error);
    throw;
  } catch (const std::exception& error) {
    if (key_ranks) key_ranks->abort(Error(ExitCode::internal, error.what()));
    throw;
  }
}

Ring::Ring(Allocator& allocator, Communicator* ring, int ring_size, const RingCapacity& capacity)
    : state_(std::make_unique<State>()) {
  ensure(ring ? ring->size() == ring_size : ring_size == 1 || allocator.planning(),
         "the ring's communicator fits ring_size");
  State& s = *state_;
  s.capacity = capacity;
  s.size = ring_size;
  s.rank = ring ? ring->rank() : 0;
  s.reset_load();
  if (ring_size == 1) return;
  if (ring) {
    s.key_ranks = ring->split(0);
    s.gradient_ranks = ring->split(0);
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
  if (capacity.backward && has_home_buffer(ring_size)) s.home = make("ring gradients home", sums, gradients);
}

Ring::~Ring() = default;

void Ring::begin(const AttentionMask& mask, std::span<const ShardExtents> extents,
                 std::span<const SegmentList> segments, std::int64_t sequences,
                 std::span<const DocumentStarts> documents) {
  State& s = *state_;
  const auto N = static_cast<std::size_t>(s.size);
  ensure(N == 1 || s.key_ranks, "a ring that was only planned does not run");
  ensure(extents.size() == N && segments.size() == N, "the shards of all ring ranks");
  if (s.clock.size() > many_moments && s.clock.passed()) s.read_times();
  s.B = sequences;
  s.mask = mask;
  s.pairs.assign(N, State::unknown);
  s.segments.assign(segments.begin(), segments.end());
  s.starts.assign(documents.begin(), documents.end());
  s.tokens.clear();
  for (const SegmentList& list : s.segments) s.tokens.push_back(token_count(list));
  ensure(N == 1 || s.most_tokens() <= s.capacity.tokens, "a micro-batch within the ring's capacity");

  plan_ = ring_plan(ring_needs(mask, extents), s.size, s.rank);
  s.rounds.assign(N + 1, {});
  for (const RingStep& step : plan_.steps) s.rounds[static_cast<std::size_t>(step.hop)].step = &step;
  s.first_hop = plan_.steps.empty() ? 0 : plan_.steps.front().hop;
  s.last_hop = plan_.steps.empty() ? 0 : plan_.steps.back().hop;
  for (const RingDelivery& delivery : plan_.deliveries) {
    s.rounds[static_cast<std::size_t>(delivery.hop)].delivery = &delivery;
  }
  for (const RingReturn& home : plan_.returns) s.rounds[static_cast<std::size_t>(home.hop)].home = &home;
}

void Ring::forward(Stream& stream, int layer, const TensorView& kv, const TensorView& documents,
                   const Visitor& visitor) {
  state_->layer = layer;
  state_->backward = false;
  state_->own_kv = kv;
  state_->own_documents = documents;
  state_->own_dkv = {};
  state_->run(stream, visitor);
}

void Ring::backward(Stream& stream, int layer, const TensorView& kv, const TensorView& documents, const TensorView& dkv,
                    const Visitor& visitor) {
  ensure(state_->size == 1 || (state_->capacity.backward && state_->most_tokens() <= state_->capacity.gradient_tokens),
         "a micro-batch within the ring's gradient buffers");
  state_->layer = layer;
  state_->backward = true;
  state_->own_kv = kv;
  state_->own_documents = documents;
  state_->own_dkv = dkv;
  state_->run(stream, visitor);
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
    bytes +=
        (buffers + (has_home_buffer(ring_size) ? 1 : 0)) * block(capacity.gradient_tokens, accumulator(capacity.dtype));
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
