#include "extras/planner/step_simulation.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <span>

#include "framework/config/config.h"
#include "framework/counted.h"
#include "framework/error.h"
#include "layers/model_spec.h"

namespace ringtrain {

namespace {

constexpr double longest_simulation = 240;  // in seconds, of one layer

constexpr double kernels_forward = 14,
                 kernels_backward = 24;  // calls in a layer, without attention, per chunk of tokens
constexpr double adapter_kernels_forward = 3, adapter_kernels_backward = 9;  // the same for each adapter

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

class StepSimulation {
 public:
  explicit StepSimulation(const StepCase& step)
      : step_(step),
        config_(step.config),
        rates_(rank_rates(step.hardware, config_, step.mean_document)),
        layer_(layer_work(config_.model, config_.training)),
        S_(static_cast<int>(config_.mesh.sequence)),
        world_(config_.mesh.data * config_.mesh.sequence),
        processors_(shared_processors(step.hardware, config_.mesh)),
        slowest_(step.hardware.slowest_of_ring(S_)) {
    // Indistinguishable rings are counted as one: those with the same position in the hardware's groups.
    const std::int64_t group = step.hardware.levels.front().ranks;
    const bool alike = group % S_ == 0 || S_ % group == 0 || world_ <= group;
    const std::int64_t rings = alike ? 1 : config_.mesh.data;
    for (const auto& [mask, layers] : layers_by_mask(config_.model)) {
      RingWork work = ring_work(config_, mask, step.mean_document);
      const RingTokens tokens = tokens_of_a_rank(work);
      groups_.push_back({layers, std::move(work), tokens});
    }
    now_.clocks.assign(static_cast<std::size_t>(rings * S_), 0.0);
    const std::int64_t of_a_layer = rings * S_ * S_ * 2 * (4 + work().parts());
    layers_ = std::clamp<std::int64_t>(step.max_events / of_a_layer, 1, config_.model.num_hidden_layers);
    constexpr double block = 35e-9, part = 25e-9;                                                 // seconds of a core
    const bool all_documents = step.mean_document > 0 && config_.mesh.layout == Layout::striped;  // counted per pair
    const double documents = all_documents ? static_cast<double>(config_.training.seq_len) / step.mean_document : 1;
    const double seconds = static_cast<double>(S_ * S_ * rings * std::min<std::int64_t>(config_.micro_batches(), 2)) *
                           (block + part * work().parts()) * std::max(1.0, documents);
    if (seconds > longest_simulation) {
      fail(ExitCode::usage,
           "simulating {} of {} ranks would take some {:.0f} s, and a plan takes {:.0f} at most: choose shorter rings "
           "(--mesh), or leave out --document-tokens",
           counted(rings, "ring"), S_, seconds, longest_simulation);
    }
  }

  StepTimes run() {
    if (config_.micro_batches() > 1) {  // all but the last are the same
      micro_batch(/*last=*/false);
      again({std::vector<double>(now_.clocks.size(), 0.0), {}}, static_cast<double>(config_.micro_batches() - 2));
    }
    micro_batch(/*last=*/true);
    finish();
    return now_.times;
  }

 private:
  /// The layers of one mask.
  struct Group {
    std::vector<std::int64_t> layers;
    RingWork work;
    RingTokens tokens;  // of the messages of a pass that keep a rank's link busy
  };
  /// Clocks and sums of what has been simulated.
  struct State {
    std::vector<double> clocks;  // [ring][rank]
    StepTimes times;
    double ring_busy = 0;  // seconds of the ring's messages
  };
  double latest() const { return *std::ranges::max_element(now_.clocks); }
  int rings() const { return static_cast<int>(std::ssize(now_.clocks)) / S_; }
  template <class Clocks>
  auto clocks_of(Clocks& clocks, int ring) const {
    return std::span(clocks).subspan(static_cast<std::size_t>(ring) * S_, S_);
  }
  /// Advances as if what happened since the mark happened `repeats` times again.
  void again(const State& since, double repeats) {
    const double before = network_time();
    for (int ring = 0; ring < rings(); ++ring) {
      const double increase = mean(clocks_of(now_.clocks, ring)) - mean(clocks_of(since.clocks, ring));
      for (double& clock : clocks_of(now_.clocks, ring)) clock += repeats * increase;
    }
    for (const auto& [key, name, value] : step_parts) {
      now_.times.*value += repeats * (now_.times.*value - since.times.*value);
    }
    now_.ring_busy += repeats * (now_.ring_busy - since.ring_busy);
    for (Bucket& bucket : under_way_) bucket.done += network_time() - before;
    network_free_ += network_time() - before;
    coming_ += network_time() - before;
  }

  /// Adds work of every rank: FLOPs and bytes of products and bytes of other passes for each of its tokens, and calls
  /// of kernels.
  void local(double flops, double product_bytes, double bytes, double calls) {
    double products = 0, passes = 0;
    for (int rank = 0; rank < S_; ++rank) {
      const auto tokens = static_cast<double>(work().tokens(rank));
      const double product = tokens * (flops / rates_.matmul + product_bytes * rates_.product_byte_seconds);
      const double pass = tokens * bytes / rates_.memory + calls * rates_.kernel_seconds;
      for (int ring = 0; ring < rings(); ++ring) now_.clocks[ring * S_ + rank] += checked_seconds(product + pass);
      products += product;
      passes += pass;
    }
    now_.times.products += products / S_;
    now_.times.memory_passes += passes / S_;
  }
  /// Adds passes of every rank over its slices of the trained parameters. Returns their seconds.
  double over_slices(double bytes_of_an_element) {
    const double elements = static_cast<double>(step_.table.flat_size()) / static_cast<double>(world_);
    const double seconds = elements * bytes_of_an_element / rates_.memory;
    for (double& clock : now_.clocks) clock += checked_seconds(seconds);
    return seconds;
  }
  void attention(Group& group, bool backward) {
    const PassCosts costs = pass_costs(config_, rates_, layer_, backward);
    double compute = 0, wait = 0;
    for (int ring = 0; ring < rings(); ++ring) {
      const PassTimes pass = simulate_pass({group.work, step_.hardware, std::int64_t{ring} * S_, processors_}, costs,
                                           clocks_of(now_.clocks, ring));
      compute += mean(pass.compute);
      wait += mean(pass.wait);
    }
    // How long the links of a rank are busy with the pass's messages.
    now_.ring_busy += (group.tokens.keys * costs.key_value_bytes + group.tokens.gradients * costs.gradient_bytes) /
                      slowest_.bandwidth;
    (backward ? now_.times.attention_backward : now_.times.attention_forward) += compute / rings();
    now_.times.ring_wait += wait / rings();
    now_.times.products += costs.overlap_seconds;
  }
  double chunks() const {
    const auto chunk = config_.training.feedforward_tokens();
    return chunk > 0 ? std::max(1.0, static_cast<double>(work().tokens(0)) / static_cast<double>(chunk)) : 1;
  }

  /// Calls body with the group of each of the layers [begin, end). The simulated layers of a mask are processed
  /// together; the other layers of the mask are like its last simulated one.
  template <class Body>
  void over_layers(std::int64_t begin, std::int64_t end, double offloaded_bytes, const Body& body) {
    for (Group& group : groups_) {
      const std::int64_t layers =
          std::ranges::count_if(group.layers, [&](std::int64_t layer) { return layer >= begin && layer < end; });
      const std::int64_t simulated = std::min(layers, layers_);
      State before = now_;
      for (std::int64_t layer = 0; layer < simulated; ++layer) {
        before = now_;
        const double start = latest();
        body(group);
        copy(offloaded_bytes, latest() - start);
      }
      if (layers > simulated) again(before, static_cast<double>(layers - simulated));
    }
  }
  static constexpr int none = -1;
  void begin_gather(int bucket) {
    const double bytes = weight_bytes(bucket);
    coming_ = bytes > 0 ? transfer(bytes) : 0;
  }
  bool shards_weights() const { return config_.training.shard == Shard::weights; }
  /// Waits for the bucket in transit, while the next one is transferred.
  void need(int next) {
    if (!gathers_) return;
    const double here = coming_;
    if (next != none) begin_gather(next);
    wait_for(here, now_.times.gather);
  }
  /// changed: the owners have updated their weights since the previous forward.
  void forward(bool changed) {
    const double e = static_cast<double>(size_of(config_.training.dtype));
    gathers_ = world_ > 1 && (changed || shards_weights());
    if (gathers_) begin_gather(0);
    need(1);
    local(0, 0, 2 * static_cast<double>(config_.model.hidden_size) * e, 2);  // embedding
    int bucket = 0;
    const auto layer = [&](Group& group) {
      need(std::min(++bucket + 1, step_.table.buckets() - 1));
      local(layer_.forward_flops, layer_.forward_product_bytes, layer_.forward_bytes,
            (kernels_forward + adapter_kernels_forward * layer_.adapters) * chunks());
      attention(group, false);
    };
    over_layers(0, first_of_backward(), 0, layer);
    over_layers(first_of_backward(), config_.model.num_hidden_layers, step_.offload.of_a_layer, layer);
    need(none);
  }
  /// The logits are computed, read for the maximum and the sum, and replaced by their gradient.
  void head(double products) {
    const auto V = static_cast<double>(config_.model.vocab_size);
    local(products * head_flops(config_.model), products * head_product_bytes(config_.model, config_.training.dtype),
          4 * V * static_cast<double>(size_of(accumulator(config_.training.dtype))), 8);
  }
  /// In a run, the first micro-batch of a step gathers the weights that the previous step has changed. Here the last
  /// one does, because it is simulated separately; the sum is the same.
  void micro_batch(bool last) {
    forward(/*changed=*/last);
    gathers_ = world_ > 1 && shards_weights();
    head(head_products(config_.model, config_.training));
    if (holds_masters_) now_.times.memory_passes += over_slices(2 * (4 + 2));  // rounded in forward and backward
    if (narrow_gradients_) now_.times.memory_passes += over_slices(4 + 2 * 2);
    const int groups = step_.table.buckets(), lowest = std::max(1, step_.table.lowest_trained());
    const bool reduces = last || narrow_gradients_ || config_.training.shard != Shard::optimizer;
    if (reduces) bucket(groups - 1);
    int layer_bucket = groups - 1;
    over_layers(first_of_backward(), config_.model.num_hidden_layers, step_.offload.of_a_layer, [&](Group& group) {
      --layer_bucket;  // the weights of the last two layers are still available
      if (gathers_ && layer_bucket == groups - 3 && layer_bucket > lowest) begin_gather(layer_bucket - 1);
      if (layer_bucket < groups - 3) need(layer_bucket > lowest ? layer_bucket - 1 : none);
      local(layer_.recompute_flops, layer_.recompute_product_bytes, 0, 0);
      if (layer_.attention_again) attention(group, false);
      local(layer_.backward_flops - layer_.overlap_flops, layer_.backward_product_bytes - layer_.overlap_product_bytes,
            layer_.backward_bytes, (kernels_backward + adapter_kernels_backward * layer_.adapters) * chunks());
      attention(group, true);
      if (reduces) bucket(layer_bucket);
    });
    if (reduces) bucket(0);
  }

  /// Waits for the part of a copy from or to the host that `hidden` seconds of work do not hide.
  void copy(double bytes, double hidden) {
    if (bytes == 0 || step_.hardware.host_bandwidth == 0) return;
    const double exposed = std::max(0.0, bytes / step_.hardware.host_bandwidth - hidden);
    for (double& clock : now_.clocks) clock += exposed;
    now_.times.offload_wait += exposed;
  }

  double gradient_bytes(int bucket) const {
    return static_cast<double>(step_.table.bucket_size(bucket, Part::trainable)) *
           static_cast<double>(size_of(accumulator(config_.training.dtype)));
  }
  /// Returns the bytes of a bucket's gather: if weights are not sharded, the frozen ones are always present.
  double weight_bytes(int bucket) const {
    std::int64_t elements = step_.table.bucket_size(bucket, Part::trainable);
    if (shards_weights()) elements += step_.table.bucket_size(bucket, Part::frozen);
    return static_cast<double>(elements) * static_cast<double>(size_of(config_.training.dtype));
  }

  // Gathers and reductions share the links with the ring's messages, for which a rank waits first; they move while the
  // links are idle. Network time is a clock that stops while the ring's messages move.
  double network_time() const { return latest() - now_.ring_busy; }
  /// Returns the tokens sent to a rank, averaged over ranks. For whole sequences, the most: all blocks of other ranks,
  /// and the gradients of those and of its own.
  RingTokens tokens_of_a_rank(const RingWork& work) const {
    const auto tokens = static_cast<double>(work.tokens(0));
    if (S_ == 1) return {};
    if (work.whole()) return {.keys = (S_ - 1) * tokens, .gradients = S_ * tokens};
    const RingTokens all = work.sent();
    return {.keys = all.keys / S_, .gradients = all.gradients / S_};
  }
  std::int64_t first_of_backward() const { return config_.model.num_hidden_layers - layer_.backward_layers; }
  /// Work that does not depend on a mask is the same for all groups.
  const RingWork& work() const { return groups_.front().work; }
  /// Begins an exchange of bytes among all ranks, after pending ones. Returns when it is done, in network time.
  double transfer(double bytes) {
    network_free_ = std::max(network_free_, network_time()) + exchange_seconds(step_.hardware, world_, bytes);
    return network_free_;
  }
  /// Lets all ranks wait for a point of network time, and adds the mean of their waits to `waited`.
  void wait_for(double network_moment, double& waited) {
    const double moment = network_moment + now_.ring_busy;
    double wait = 0;
    for (double& clock : now_.clocks) {
      wait += std::max(0.0, moment - clock);
      clock = std::max(clock, moment);
    }
    waited += wait / rings() / S_;
  }

  /// A group's gradients are complete: waits for the bucket before the last one, and starts this one.
  void bucket(int group) {
    if (world_ == 1 || gradient_bytes(group) == 0) return;
    if (under_way_.size() == 2) wait_for_bucket();
    const double bytes = gradient_bytes(group);
    // The rank adds the parts of its slice from all other ranks.
    const double add = bytes * 3 / rates_.memory;
    under_way_.push_back({transfer(bytes), add});
  }
  void wait_for_bucket() {
    const auto [done, add] = under_way_.front();
    under_way_.pop_front();
    wait_for(done, now_.times.reduction_wait);
    for (double& clock : now_.clocks) clock += add;
    now_.times.update += add;
  }
  void finish() {
    while (!under_way_.empty()) wait_for_bucket();
    const DType dtype = config_.training.dtype, wide = accumulator(dtype);
    const auto bytes = [](DType type) { return static_cast<double>(size_of(type)); };
    const double gradient = bytes(narrow_gradients_ ? DType::bfloat16 : wide);
    const double moment = bytes(config_.optimizer.moments == DType::bfloat16 ? DType::bfloat16 : wide);
    copy(step_.offload.of_update, 0);
    // Gradients are read for the norm and again; weights and both moments are read and written; and weights rounded.
    now_.times.update += over_slices(2 * gradient + 2 * bytes(wide) + 4 * moment + (holds_masters_ ? 0 : bytes(dtype)));
    now_.times.step_seconds = latest();
  }

  const StepCase& step_;
  const Config& config_;
  const RankRates rates_;
  const LayerWork layer_;
  const int S_;
  const std::int64_t world_;
  const SharedProcessors processors_;
  const LinkLevel& slowest_;  // of a ring
  std::vector<Group> groups_;
  State now_;
  std::int64_t layers_ = 1;  // that are simulated
  struct Bucket {
    double done, add;  // when it has arrived; seconds to add it
  };
  std::deque<Bucket> under_way_;
  double network_free_ = 0;  // in network time
  bool gathers_ = false;     // in the current forward or backward
  const bool narrow_gradients_ = config_.optimizer.gradients == DType::bfloat16;
  const bool holds_masters_ = config_.training.store_holds_masters();
  double coming_ = 0;  // when the next bucket's weights have arrived, likewise
};

}  // namespace

StepTimes simulate_step(const StepCase& step) {
  return StepSimulation(step).run();
}

RingWork ring_work(const Config& config, const AttentionMask& mask, double mean_document) {
  const Device device = config.training.device == Device::Kind::cuda ? Device::cuda(0) : Device::cpu();
  return RingWork(
      {.mask = mask,
       .layout = config.mesh.layout,
       .length = config.training.seq_len,
       .ranks = static_cast<int>(config.mesh.sequence),
       .sequences = config.training.micro_batch_size,
       .documents = sample_documents(config.training.seq_len, parts_documents(config.data.packing) ? mean_document : 0),
       .min_part = default_min_part(device, config.model.num_key_value_heads)});
}

PassCosts pass_costs(const Config& config, const RankRates& rates, const LayerWork& work, bool backward) {
  const auto HD = static_cast<double>(config.model.num_attention_heads * config.model.head_dim);
  const DType dtype = config.training.dtype;
  const double ids = parts_documents(config.data.packing) ? 4 : 0;
  const auto H = static_cast<double>(config.model.num_attention_heads);
  const double pair = backward ? 10 * HD / rates.attention_backward + H * rates.pair_seconds_backward
                               : 4 * HD / rates.attention_forward + H * rates.pair_seconds_forward;
  PassCosts costs{.pair_seconds = pair,
                  .visit_seconds = rates.kernel_seconds,
                  .key_value_bytes = key_value_bytes(config.model, dtype) + ids,
                  .gradient_bytes = backward ? key_value_bytes(config.model, accumulator(dtype)) : 0,
                  .overlap_seconds = 0};
  if (backward) {
    const double tokens = static_cast<double>(config.training.micro_batch_size * config.training.seq_len) /
                          static_cast<double>(config.mesh.sequence);
    costs.overlap_seconds =
        tokens * (work.overlap_flops / rates.matmul + work.overlap_product_bytes * rates.product_byte_seconds);
  }
  return costs;
}

double exchange_seconds(const Hardware& hardware, std::int64_t ranks, double bytes) {
  double seconds = 0;
  std::int64_t inner = 1;  // ranks that the levels so far connect
  for (const LinkLevel& level : hardware.levels) {
    const std::int64_t reached = &level == &hardware.levels.back() ? ranks : std::min(ranks, level.ranks);
    if (reached > inner) {
      const double peers = static_cast<double>(reached - inner);
      seconds += level.latency + peers / static_cast<double>(ranks) * bytes / level.bandwidth;
      inner = reached;
    }
  }
  return seconds;
}

}  // namespace ringtrain
