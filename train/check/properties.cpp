#include "train/check/properties.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "framework/config/training_stages.h"
#include "train/check/reference_rows.h"
#include "train/check/rounding.h"

namespace ringtrain {

namespace {

using Hook = std::function<void(RankState& state, std::int64_t step)>;

/// What one step of a variant told: of every token of its sequences, in order.
struct Observed {
  double loss = 0, norm = 0;
  std::vector<double> tokens, nll, weights;
};

/// Returns the local index of a position in a rank's batch, -1 if another rank holds it.
std::int64_t local_index(const Batch& batch, std::int64_t position) {
  for (std::int64_t t = 0; t < batch.T; ++t) {
    if (position_of(batch.segments, t) == position) return t;
  }
  return -1;
}

/// Lets the first token of the step's sequences at this position be another one.
Hook changed_token(std::int64_t position, std::int32_t token) {
  return [=](RankState& state, std::int64_t) {
    if (state.mesh.data_index(state.rank) != 0) return;
    const std::int64_t t = local_index(state.batch, position);
    if (t >= 0) state.batch.tokens().as<std::int32_t>()[t] = token;
  };
}

/// Takes all targets from one rank of each ring.
Hook masked_rank(int ring_rank) {
  return [=](RankState& state, std::int64_t) {
    if (state.mesh.sequence_index(state.rank) != ring_rank) return;
    for (std::size_t micro = 0; micro <= state.later_batches.size(); ++micro) {
      const Batch& batch = state.batch_of(static_cast<std::int64_t>(micro));
      for (std::int64_t i = 0; i < batch.labels().numel(); ++i) batch.labels().as<std::int32_t>()[i] = -1;
      const TensorView weights = batch.weights();
      dispatch_float(weights.dtype, [&]<class Real>() {
        for (std::int64_t i = 0; i < weights.numel(); ++i) weights.as<Real>()[i] = 0;
      });
    }
  };
}

class PropertyCheck {
 public:
  PropertyCheck(const TrainOptions& options, Launcher& launcher)
      : options_(options), stage_(config_of_step(options.config, options.dump.step)), launcher_(launcher) {}

  std::vector<Property> run() {
    base_ = observe(options_.config, {});
    if (launcher_.is_rank_zero()) {
      data_is_the_files();
      denominator_is_the_sum_of_weights();
    }
    token_reaches_what_it_may();
    rank_without_targets_gives_zero();
    layouts_and_rings_agree();
    return properties_;
  }

 private:
  Run prepare(const Config& config) const {
    TrainOptions options = options_;
    options.config = config;
    return prepare_run(
        options, [](const std::string&) {}, launcher_);
  }
  /// Runs the step of a config. Returns what it told, nothing where this is not process 0.
  Observed observe(const Config& config, const Hook& hook) {
    Run run = prepare(config);
    run.before_forward = hook;
    const StepResult result = dumped_step(
        run, [](const std::string&) {}, launcher_);
    Observed observed{.loss = result.loss, .norm = result.grad_norm, .tokens = {}, .nll = {}, .weights = {}};
    if (!launcher_.is_rank_zero()) return observed;
    const DumpReader dump(run.dump.folder);
    const auto read = [&](const char* name) { return dump.read(*dump.find(name)); };
    observed.tokens = read("input.tokens");
    observed.nll = read("nll");
    observed.weights = read("input.weights");
    return observed;
  }
  void tell(const std::string& name, bool holds, const std::string& found) {
    if (launcher_.is_rank_zero()) properties_.push_back({name, holds, found});
  }
  std::vector<reference::Row> rows_of_file() const {
    const Run run = prepare(options_.config);
    std::vector<reference::Row> rows;
    for (std::int64_t i = 0; i < stage_.training.global_batch_size; ++i) {
      rows.push_back(reference_row(run, options_.dump.step, i));
    }
    return rows;
  }
  /// Returns how far two sums of n numbers like these in double may be apart.
  static double sums_apart(const std::vector<double>& x) {
    double sum = 0;
    for (const double value : x) sum += std::abs(value);
    return Rounding::safety_of_a_number * 0x1p-53 * std::sqrt(static_cast<double>(x.size())) * sum;
  }
  static std::vector<double> weighted(const Observed& observed) {
    std::vector<double> products;
    for (std::size_t i = 0; i < observed.nll.size(); ++i) products.push_back(observed.weights[i] * observed.nll[i]);
    return products;
  }
  static double sum_of(const std::vector<double>& x) {
    double sum = 0;
    for (const double value : x) sum += value;
    return sum;
  }

  /// A dump has each token of the step once, or it cannot be read: sequence ranks share their sequences.
  void data_is_the_files() {
    const Run run = prepare(options_.config);
    const std::vector<std::int64_t> samples = run.sample_indices(options_.dump.step);
    std::int64_t differing = 0, at = 0;
    for (const reference::Row& row : rows_of_file()) {
      for (const std::int32_t token : row.tokens) differing += base_.tokens[at++] != token ? 1 : 0;
    }
    const std::size_t different = std::set(samples.begin(), samples.end()).size();
    tell("data ranks hold different sequences, and sequence ranks share them as the file has them", differing == 0,
         fmt::format("{} of {} tokens are others; {} sequences, {} of them different", differing, at, samples.size(),
                     different));
  }

  void denominator_is_the_sum_of_weights() {
    denominator_ = 0;
    for (const reference::Row& row : rows_of_file()) denominator_ += sum_of(row.weights);
    const std::vector<double> products = weighted(base_);
    const double wanted = sum_of(products) / denominator_;
    tell("the loss is the sum of weight x nll over the sum of weights",
         std::abs(base_.loss - wanted) <= sums_apart(products) / denominator_,
         fmt::format("{} over {} is {}, and the run has {}", sum_of(products), denominator_, wanted, base_.loss));
  }

  void token_reaches_what_it_may() {
    const Config& config = options_.config;
    const std::int64_t S = stage_.training.seq_len;
    const reference::Row row = rows_of_file().front();
    std::int64_t position = S / 2;
    while (position + 1 < S && row.labels[position] < 0) ++position;
    const auto other = static_cast<std::int32_t>((row.tokens[position] + 1) % config.model.vocab_size);
    const Observed changed = observe(config, changed_token(position, other));
    if (!launcher_.is_rank_zero()) return;
    // Each layer lets a token reach window - 1 tokens further, or all.
    std::int64_t reach = 0;
    for (const MaskedLayers& of : layers_by_mask(config.model)) {
      reach += std::ssize(of.layers) * (of.mask.window == 0 ? S : std::min(S, of.mask.window - 1));
    }
    std::int64_t before = -1, beyond = -1, elsewhere = -1, reached = 0;
    for (std::int64_t i = 0; i < std::ssize(base_.nll); ++i) {
      if (base_.nll[i] == changed.nll[i]) continue;
      const std::int64_t t = i % S;
      const bool same_document = row.documents.empty() || (i < S && row.documents[t] == row.documents[position]);
      if (i >= S || !same_document)
        elsewhere = i;
      else if (t < position)
        before = t;
      else if (t > position + reach)
        beyond = t;
      else
        ++reached;
    }
    const auto found = [&](std::int64_t at) {
      return at < 0 ? fmt::format("token {} was changed, and {} nll of its sequence with it", position, reached)
                    : fmt::format("token {} of sequence 0 was changed, and with it the nll of token {} of sequence {}",
                                  position, at % S, at / S);
    };
    tell("a token changes nothing before it", before < 0, found(before));
    tell("a token changes nothing in another document or sequence", elsewhere < 0, found(elsewhere));
    if (reach < S) tell("a token changes nothing beyond its window", beyond < 0, found(beyond));
    const bool has_target = row.labels[position] >= 0;
    tell("a token changes what it may", reached > 0 || !has_target, found(-1));
  }

  void rank_without_targets_gives_zero() {
    const Config& config = options_.config;
    const int ring = static_cast<int>(config.mesh.sequence), masked = ring - 1;
    if (ring == 1) return;
    const Observed without = observe(config, masked_rank(masked));
    if (!launcher_.is_rank_zero()) return;
    std::vector<double> products = weighted(base_);
    const SegmentList shard = shard_segments(config.mesh.layout, stage_.training.seq_len, ring, masked);
    for (std::int64_t i = 0; i < stage_.training.global_batch_size; ++i) {
      for (std::int64_t t = 0; t < token_count(shard); ++t)
        products[i * stage_.training.seq_len + position_of(shard, t)] = 0;
    }
    const double wanted = sum_of(products) / denominator_;
    const bool holds =
        std::isfinite(without.norm) && std::abs(without.loss - wanted) <= sums_apart(products) / denominator_;
    tell("a rank without targets adds zero, and no NaN", holds,
         fmt::format("the loss is {} of the {} that the others have, the gradient's norm {}", without.loss, wanted,
                     without.norm));
  }

  void layouts_and_rings_agree() {
    std::vector<Config> variants;
    for (const Layout layout : all_layouts) {
      Config config = options_.config;
      config.mesh.layout = layout;
      if (layout != options_.config.mesh.layout && config.mesh.sequence > 1) variants.push_back(config);
    }
    // Processes are as many as the mesh has ranks; threads as many as wanted.
    const MeshConfig& mesh = options_.config.mesh;
    const std::int64_t ranks = mesh.data * mesh.sequence, sequences = stage_.training.global_batch_size;
    for (const std::int64_t ring : {std::int64_t{1}, mesh.sequence + 1, mesh.sequence * 2, ranks}) {
      Config config = options_.config;
      config.mesh.sequence = ring;
      if (launcher_.ranks_are_processes()) config.mesh.data = ranks % ring == 0 ? ranks / ring : 0;
      const std::int64_t per_rank = config.mesh.data * config.training.micro_batch_size;
      if (ring == mesh.sequence || ring > stage_.training.seq_len || per_rank == 0 || sequences % per_rank != 0)
        continue;
      variants.push_back(config);
      break;
    }
    const double tolerance = std::max(Rounding::safety * precision_of(options_.config.training.dtype).stored, 1e-13);
    for (const Config& variant : variants) {
      const Observed other = observe(variant, {});
      tell(fmt::format("a mesh of {} x {} {} has the same loss", variant.mesh.data, variant.mesh.sequence,
                       name_of(variant.mesh.layout)),
           std::abs(other.loss - base_.loss) <= tolerance * std::abs(base_.loss),
           fmt::format("{} and {}", base_.loss, other.loss));
    }
  }

  const TrainOptions options_;
  const Config stage_;  // of the step
  Launcher& launcher_;
  Observed base_;
  double denominator_ = 0;
  std::vector<Property> properties_;
};

}  // namespace

std::vector<Property> check_properties(const CheckOptions& options, const Log& log, Launcher& launcher) {
  std::vector<std::string> cuts;
  TrainOptions run = checked_run(options, cuts);
  for (const std::string& clause : cuts) log("cut: " + clause);
  run.dump.update = false;
  run.dump.wanted = [](const std::string& name) { return name == "nll" || name.starts_with("input."); };
  std::vector<Property> properties = PropertyCheck(run, launcher).run();
  if (launcher.is_rank_zero() && !options.keep) remove_dump(run.dump.folder);
  return properties;
}

}  // namespace ringtrain
