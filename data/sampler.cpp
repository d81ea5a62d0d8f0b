// The order of samples: files share the run's sequences in a fixed repeating pattern of slots. Each file goes through
// its windows epoch by epoch, in a separate permutation per epoch.
#include "data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "framework/error.h"
#include "framework/random.h"

namespace ringtrain {

namespace {

constexpr std::size_t longest_period = 1000;

/// Returns how many slots of a period each file gets: the shortest period of at most longest_period that meets the
/// weights exactly, or else the longest one with the largest remainders rounded up. Every file gets at least one.
std::vector<int> slots_of(const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const std::size_t max_period = std::max(longest_period, weights.size());
  std::vector<int> slots(weights.size());
  const auto share = [&](std::size_t file, std::size_t period) {
    return weights[file] / sum * static_cast<double>(period);
  };
  for (std::size_t period = weights.size(); period <= max_period; ++period) {
    bool exact = true;
    for (std::size_t file = 0; file < weights.size(); ++file) {
      const double wanted = share(file, period);
      slots[file] = static_cast<int>(std::lround(wanted));
      exact = exact && slots[file] >= 1 && std::abs(wanted - slots[file]) < 1e-9 * static_cast<double>(period);
    }
    if (exact) return slots;
  }
  std::vector<std::size_t> by_remainder(weights.size());
  std::iota(by_remainder.begin(), by_remainder.end(), 0);
  const auto remainder = [&](std::size_t file) {
    return share(file, max_period) - std::floor(share(file, max_period));
  };
  std::ranges::stable_sort(by_remainder, [&](std::size_t a, std::size_t b) { return remainder(a) > remainder(b); });
  int left = static_cast<int>(max_period);
  for (std::size_t file = 0; file < weights.size(); ++file) {
    left -= slots[file] = std::max(1, static_cast<int>(std::floor(share(file, max_period))));
  }
  for (std::size_t i = 0; left > 0; i = (i + 1) % by_remainder.size(), --left) ++slots[by_remainder[i]];
  return slots;  // the period is their sum: slightly more than `max_period` if many tiny files were rounded up to one
}

/// Spreads each file's slots evenly (smooth weighted round robin: in every step, each file earns its slots, and the
/// file with the most is drawn and pays the period).
std::vector<int> spread(const std::vector<int>& slots) {
  const int period = std::accumulate(slots.begin(), slots.end(), 0);
  std::vector<int> credit(slots.size(), 0), pattern;
  for (int slot = 0; slot < period; ++slot) {
    for (std::size_t file = 0; file < slots.size(); ++file) credit[file] += slots[file];
    const auto richest = std::ranges::max_element(credit);
    *richest -= period;
    pattern.push_back(static_cast<int>(richest - credit.begin()));
  }
  return pattern;
}

}  // namespace

Sampler::Sampler(std::vector<std::int64_t> windows, std::vector<double> weights, std::uint64_t seed)
    : windows_(std::move(windows)), seed_(seed) {
  ensure(!windows_.empty() && windows_.size() == weights.size(), "a weight for every file");
  for (std::size_t file = 0; file < windows_.size(); ++file) {
    if (windows_[file] < 1) fail(ExitCode::data, "training file {} has no window of training.seq_len tokens", file);
    if (!(weights[file] > 0) || !std::isfinite(weights[file])) {
      fail(ExitCode::usage, "data.train: file {} has weight {}; it must be finite and above 0", file, weights[file]);
    }
  }
  first_window_.resize(windows_.size() + 1);
  std::partial_sum(windows_.begin(), windows_.end(), first_window_.begin() + 1);
  pattern_ = spread(slots_of(weights));
  slots_.resize(windows_.size());
  for (const int file : pattern_) before_.push_back(slots_[file]++);
}

Sample Sampler::sample(std::int64_t i) const {
  ensure(i >= 0, "samples count from 0");
  const auto period = static_cast<std::int64_t>(pattern_.size());
  const auto slot = static_cast<std::size_t>(i % period);
  const int file = pattern_[slot];
  const auto f = static_cast<std::size_t>(file);
  // This is draw k from this file.
  const std::int64_t k = i / period * slots_[f] + before_[slot];
  Sample sample;
  sample.file = file;
  sample.epoch = k / windows_[f];
  // A permutation's index has 24 bits; after that many epochs, the orders repeat.
  const std::uint64_t index =
      static_cast<std::uint64_t>(sample.epoch) * windows_.size() + static_cast<std::uint64_t>(file);
  const Permutation order(static_cast<std::uint64_t>(windows_[f]), seed_, Purpose::data_order, index & 0xFFFFFF);
  sample.window = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(k % windows_[f])));
  sample.global_index = first_window_[f] + sample.window;
  return sample;
}

}  // namespace ringtrain
