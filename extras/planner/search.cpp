#include "extras/planner/search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <tuple>

#include "framework/config/read_config.h"
#include "framework/error.h"
#include "framework/profile/progress.h"
#include "layers/model_parameters.h"

namespace ringtrain {

namespace {

/// Of one candidate: a search tells many apart, and simulates a layer or two of each.
constexpr std::int64_t max_events = 4'000'000;
constexpr std::int64_t largest_micro_batch = 8;
constexpr std::array preferred_layouts{Layout::zigzag, Layout::striped, Layout::contiguous};
constexpr std::int64_t largest_growth = 8;   // of the config's batch, where none is named
constexpr std::int64_t longest_ring = 4096;  // longer ones take many seconds each

std::string memory_text(const MemoryNeed& need) {
  if (need.host < 1) return human_bytes(need.device);
  return fmt::format("{}, and {} of the host", human_bytes(need.device), human_bytes(need.host));
}

std::string mesh_text(const MeshConfig& mesh) {
  return fmt::format("{}x{}", mesh.data, mesh.sequence);
}

/// Plans memory and, where it fits, time.
class Search {
 public:
  Search(const PlanRequest& request, std::int64_t devices)
      : request_(request),
        devices_(devices),
        table_(request.model.table(request.config)),
        useful_flops_of_a_token_(
            useful_step_flops(request) /
            static_cast<double>(request.config.training.global_batch_size * request.config.training.seq_len)) {}

  std::vector<Candidate> all(const std::vector<std::int64_t>& batches) const {
    std::vector<Candidate> found;
    for (const std::int64_t batch : batches) add_batch(batch, found);
    return found;
  }

  void add_batch(std::int64_t batch, std::vector<Candidate>& found) const {
    const bool cuda = request_.config.training.device == Device::Kind::cuda;
    for (std::int64_t data = 1; data <= devices_; ++data) {
      if (devices_ % data != 0 || batch % data != 0) continue;
      MeshConfig mesh = request_.config.mesh;
      mesh.data = data;
      mesh.sequence = devices_ / data;
      if (mesh.sequence > longest_ring || mesh.sequence > request_.config.training.seq_len) continue;
      for (const Layout layout : all_layouts) {
        if (mesh.sequence == 1 && layout != Layout::zigzag) continue;  // all the same
        mesh.layout = layout;
        for (const Recompute recompute : all_recompute_policies) {
          for (const auto& [offload, name] : offload_names) {
            if (offload != Offload::none && !cuda) continue;
            for (const Shard shard : all_shard_policies) {
              if (shard != Shard::optimizer && devices_ == 1) continue;  // all the same
              add_micro_batches({.mesh = mesh,
                                 .recompute = recompute,
                                 .offload = offload,
                                 .shard = shard,
                                 .global_batch_size = batch},
                                found);
            }
          }
        }
      }
    }
  }

  /// Fills in a candidate's memory, and its time if it fits.
  void plan(Candidate& candidate) const {
    const Config config = config_of(request_.config, candidate);
    const auto plans = plan_ranks(config, table_, training_purpose(config), request_.model);
    candidate.need = memory_need(config, request_.hardware, plans);
    candidate.fits = candidate.need.fits(request_.hardware);
    if (!candidate.fits) return;
    candidate.times = simulate_step({.config = config,
                                     .table = table_,
                                     .hardware = request_.hardware,
                                     .mean_document = request_.mean_document,
                                     .offload = offloaded_bytes(config, plans),
                                     .max_events = max_events});
    candidate.step_seconds = candidate.times.step_seconds;
    const auto tokens = static_cast<double>(config.training.global_batch_size * config.training.seq_len);
    candidate.tokens_per_second = tokens / candidate.step_seconds;
    const RankRates rates = rank_rates(request_.hardware, config.mesh, config.training.dtype);
    candidate.mfu =
        useful_flops_of_a_token_ * candidate.tokens_per_second / (rates.peak * static_cast<double>(devices_));
  }

 private:
  void add_micro_batches(Candidate candidate, std::vector<Candidate>& found) const {
    const std::int64_t sequences = candidate.global_batch_size / candidate.mesh.data;
    for (std::int64_t size = 1; size <= std::min(sequences, largest_micro_batch); size *= 2) {
      if (sequences % size != 0) continue;
      candidate.micro_batch_size = size;
      found.push_back(candidate);
    }
  }

  const PlanRequest& request_;
  const std::int64_t devices_;
  const ParameterTable table_;
  const double useful_flops_of_a_token_;
};

/// Returns the batches that are tried where nobody names any.
std::vector<std::int64_t> batches_of(const Config& config, std::int64_t devices) {
  std::vector<std::int64_t> batches;
  const std::int64_t own = config.training.global_batch_size;
  for (std::int64_t batch = own; batch == own || batch <= std::min(devices, largest_growth * own); batch *= 2) {
    batches.push_back(batch);
  }
  return batches;
}

/// Sorts the fastest first; then moves the choice among its ties to the front.
void rank(const PlanRequest& request, std::int64_t devices, std::vector<Candidate>& candidates) {
  std::ranges::stable_sort(candidates, [&](const Candidate& a, const Candidate& b) {
    if (a.fits != b.fits) return a.fits;
    return a.fits ? a.tokens_per_second > b.tokens_per_second : a.need.device < b.need.device;
  });
  if (!candidates.front().fits) return;
  const double fastest = candidates.front().tokens_per_second;
  const auto end = std::ranges::find_if(
      candidates, [&](const Candidate& c) { return !c.fits || c.tokens_per_second < (1 - tie) * fastest; });
  const auto key = [&](const Candidate& c) {
    return std::tuple(std::abs(c.global_batch_size - request.config.training.global_batch_size),
                      std::ranges::find(preferred_layouts, c.mesh.layout) - preferred_layouts.begin(),
                      c.need.of_a_rank(request.hardware, devices));
  };
  const auto choice = std::min_element(candidates.begin(), end,
                                       [&](const Candidate& a, const Candidate& b) { return key(a) < key(b); });
  std::rotate(candidates.begin(), choice, choice + 1);
}

/// One choice that a candidate makes.
struct Choice {
  const char* name;
  std::string (*value)(const Candidate&);
};
const std::array choices{Choice{"mesh", [](const Candidate& c) { return mesh_text(c.mesh); }},
                         Choice{"layout", [](const Candidate& c) { return std::string(name_of(c.mesh.layout)); }},
                         Choice{"recompute", [](const Candidate& c) { return std::string(name_of(c.recompute)); }},
                         Choice{"offload", [](const Candidate& c) { return std::string(name_of(c.offload)); }},
                         Choice{"shard", [](const Candidate& c) { return std::string(name_of(c.shard)); }},
                         Choice{"batch", [](const Candidate& c) { return std::to_string(c.global_batch_size); }},
                         Choice{"micro-batch", [](const Candidate& c) { return std::to_string(c.micro_batch_size); }}};

/// Returns why the best candidate makes a choice: how the best one with another value does, all else the same.
std::string reason(const std::vector<Candidate>& candidates, const Choice& choice) {
  const Candidate& best = candidates.front();
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    const Candidate& other = candidates[i];
    const bool differs = choice.value(other) != choice.value(best);
    const bool alike = std::ranges::all_of(
        choices, [&](const Choice& one) { return one.name == choice.name || one.value(other) == one.value(best); });
    if (!differs || !alike) continue;
    if (!other.fits) {
      return fmt::format("{} {}: {} would need {}, which does not fit", choice.name, choice.value(best),
                         choice.value(other), memory_text(other.need));
    }
    const double longer = best.tokens_per_second / other.tokens_per_second - 1;
    if (longer < tie) {
      return fmt::format("{} {}: {} takes {:+.1f} %, which is a tie, and needs {}", choice.name, choice.value(best),
                         choice.value(other), 100 * longer, memory_text(other.need));
    }
    const StepPart* largest = step_parts.data();
    const auto cost = [&](const StepPart& part) {
      const auto of_a_sequence = [&](const Candidate& c) {
        return c.times.*part.seconds / static_cast<double>(c.global_batch_size);
      };
      return of_a_sequence(other) - of_a_sequence(best);
    };
    for (const StepPart& part : step_parts) {
      if (cost(part) > cost(*largest)) largest = &part;
    }
    return fmt::format("{} {}: {} takes {:.1f} % longer, most of it in {}", choice.name, choice.value(best),
                       choice.value(other), 100 * longer, largest->reason);
  }
  return fmt::format("{} {}: there is no other", choice.name, choice.value(best));
}

}  // namespace

Config config_of(const Config& config, const Candidate& candidate) {
  Config chosen = config;
  chosen.mesh = candidate.mesh;
  chosen.training.recompute = candidate.recompute;
  chosen.training.offload = candidate.offload;
  chosen.training.shard = candidate.shard;
  chosen.training.global_batch_size = candidate.global_batch_size;
  chosen.training.micro_batch_size = candidate.micro_batch_size;
  return chosen;
}

std::string set_flags(const Config& config, const Config& chosen) {
  std::string flags;
  for (const ConfigDifference& key : differences(config, chosen)) {
    flags += fmt::format(" --set {}={}", key.key, key.after);
  }
  return flags;
}

SearchResult search_plans(const PlanRequest& request, std::int64_t devices, std::vector<std::int64_t> batches) {
  if (batches.empty()) batches = batches_of(request.config, devices);
  const Search search(request, devices);
  SearchResult result;
  result.candidates = search.all(batches);
  if (result.candidates.empty()) {
    fail(ExitCode::usage,
         "no mesh of {} devices divides training.global_batch_size = {} into rings of at most training.seq_len = {} "
         "and {} ranks: change one of them with --set, or name another --batch",
         devices, fmt::join(batches, ", "), request.config.training.seq_len, longest_ring);
  }
  double seconds = 0;
  for (const Candidate& candidate : result.candidates) seconds += simulating_seconds(candidate.mesh.sequence, 2);
  tell_seconds(request.tell, fmt::format("simulating {} ways to run it", result.candidates.size()), seconds);
  for (Candidate& candidate : result.candidates) search.plan(candidate);
  rank(request, devices, result.candidates);
  if (!result.candidates.front().fits) return result;
  for (const Choice& choice : choices) result.why.push_back(reason(result.candidates, choice));
  return result;
}

std::string search_report(const SearchResult& result, std::size_t shown) {
  std::size_t fitting = 0;
  for (const Candidate& candidate : result.candidates) fitting += candidate.fits ? 1 : 0;
  std::string text = fmt::format("{} ways to run it, of which {} fit; the choice, then the fastest:\n",
                                 result.candidates.size(), fitting);
  text += fmt::format("  {:>11}  {:<10}  {:<14}  {:<21}  {:<9}  {:>5}  {:>5}  {:>10}  {:>10}  {:>10}  {:>10}  {:>6}\n",
                      "mesh", "layout", "recompute", "offload", "shard", "batch", "micro", "memory", "host/node",
                      "step", "tokens/s", "MFU");
  for (std::size_t i = 0; i < std::min(shown, result.candidates.size()); ++i) {
    const Candidate& c = result.candidates[i];
    text += fmt::format("  {:>11}  {:<10}  {:<14}  {:<21}  {:<9}  {:>5}  {:>5}  {:>10}  {:>10}  ", mesh_text(c.mesh),
                        name_of(c.mesh.layout), name_of(c.recompute), name_of(c.offload), name_of(c.shard),
                        c.global_batch_size, c.micro_batch_size, human_bytes(c.need.device), human_bytes(c.need.host));
    text += c.fits
                ? fmt::format("{:>8.4g} s  {:>10.4g}  {:>4.1f} %\n", c.step_seconds, c.tokens_per_second, 100 * c.mfu)
                : std::string("does not fit\n");
  }
  if (result.why.empty()) return text;
  text += "why the first:\n";
  for (const std::string& sentence : result.why) text += "  " + sentence + "\n";
  return text;
}

}  // namespace ringtrain
