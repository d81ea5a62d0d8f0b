// Steps whose attention is audited, on any device: many correct ones, and some with a seeded flip.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "framework/random.h"
#include "layers/audit/attention_audit.h"
#include "tests/layers/harness.h"

namespace ringtrain::testing {

/// A model of two layers, four query heads of 16 and two key/value heads.
inline ModelConfig audited_model(std::int64_t window = 0) {
  ModelConfig config = small_llama();
  config.hidden_size = 32;
  config.num_hidden_layers = 2;
  config.head_dim = 16;
  config.intermediate_size = 40;
  config.rope_theta = 1000;
  config.sliding_window = window;
  return config;
}

/// The results of the audits of many steps.
struct Audits {
  std::int64_t rows = 0, differences = 0;
  std::array<double, audited_tensors> error{};
  std::string first;

  void add(const AuditReport& report) {
    const std::lock_guard lock(mutex);
    rows += report.rows;
    differences += report.differences;
    for (std::size_t i = 0; i < error.size(); ++i) error[i] = std::max(error[i], report.error[i]);
    if (report.first && first.empty()) {
      const AuditDifference& found = *report.first;
      first = fmt::format("{} of layer {}, head {}, position {}: {} and {}, bound {}", name_of(found.tensor),
                          found.at.layer, found.at.head, found.at.position, found.run, found.exact, found.bound);
    }
  }
  std::mutex mutex;
};

/// Audits steps of one micro-batch on every rank of a ring.
inline void audit_steps(const ModelConfig& config, const RunOptions& options, const Sequences& sequences,
                        std::int64_t steps, Audits& audits) {
  on_ring(config, options, sequences, [&](RankModel& rank) {
    AttentionAudit& audit = rank.model.audit();
    const std::int64_t T =
        token_count(shard_segments(options.layout, sequences.S, options.ranks, rank.sequence_group.rank()));
    for (std::int64_t step = 1; step <= steps; ++step) {
      audit.begin_step(7, step, rank.sequence_group.rank(), /*micro_batches=*/1, sequences.B, T);
      rank.train(sequences, sequences.denominator());
      rank.stream.synchronize();
      audits.add(audit.take_report());
    }
  });
}

/// longest: tokens of an additional audited sequence, because rounding grows with it.
inline void expect_no_alarm(Device device, std::span<const DType> dtypes, std::int64_t steps, std::int64_t longest) {
  for (const DType dtype : dtypes) {
    Audits audits;
    std::uint64_t seed = 0;
    for (const Recompute recompute : {Recompute::none, Recompute::keep_attention, Recompute::full}) {
      for (const Layout layout : all_layouts) {
        for (const int ranks : {1, 2, 3, 5}) {
          for (const std::int64_t window : {0, 9}) {
            const bool documents = ++seed % 2 == 0;
            ModelConfig config = audited_model(window);
            config.attention_softcap = seed % 5 == 1 ? 2 : 0;
            config.attention_sinks = seed % 5 == 2;
            const Sequences sequences =
                random_sequences(config, 1 + static_cast<std::int64_t>(seed % 3),
                                 29 + static_cast<std::int64_t>(seed * 7 % 60), documents, seed);
            audit_steps(config,
                        {.ranks = ranks,
                         .layout = layout,
                         .dtype = dtype,
                         .recompute = recompute,
                         .device = device,
                         .audit_rows = 16},
                        sequences, steps, audits);
          }
        }
      }
    }
    audit_steps(audited_model(),
                {.ranks = 2, .layout = Layout::zigzag, .dtype = dtype, .device = device, .audit_rows = 32},
                random_sequences(audited_model(), 1, longest, /*documents=*/false, 1), steps, audits);
    EXPECT_EQ(audits.differences, 0) << name_of(dtype) << ": " << audits.first;
    fmt::print("{}: {} rows; the largest error is", name_of(dtype), audits.rows);
    for (int i = 0; i < audited_tensors; ++i) {
      const double error = audits.error[static_cast<std::size_t>(i)];
      fmt::print(" {:.3f} of the bound of {}{}", error, name_of(static_cast<AuditedTensor>(i)),
                 i + 1 < audited_tensors ? "," : "\n");
      // Tiles of tensor cores have shorter sums, and an emulator has few rows: both are further below their bounds.
      EXPECT_GT(error, device.is_cpu() ? 1.0 / 30 : 1.0 / 60)
          << name_of(static_cast<AuditedTensor>(i)) << " of " << name_of(dtype);
    }
  }
}

/// Flips one bit of an element; returns the change of its value.
inline double flip(Stream& stream, const TensorView& x, std::int64_t index, int bit) {
  const TensorView element = x.flat(index, index + 1);
  std::uint64_t bits = 0;
  const TensorView host{&bits, {1}, x.dtype, Device::cpu()};
  copy(stream, host, element);
  const double before = elements(host)[0];
  bits ^= std::uint64_t{1} << bit;
  copy(stream, element, host);
  stream.synchronize();
  return std::abs(elements(host)[0] - before);
}

/// Flips of one bit: how many there were, how many changed an element by more than 4 bounds, how many were found, and
/// how many of the large ones were missed.
struct FlipCount {
  std::int64_t made = 0, large = 0, found = 0, missed = 0;

  void add(bool is_large, bool is_found) {
    ++made;
    large += is_large;
    found += is_found;
    missed += is_large && !is_found;
  }
};

inline void print_flips(const char* of, std::span<const FlipCount> by_bit) {
  fmt::print("{}, by bit (0: the last of the mantissa):\n", of);
  for (std::size_t bit = by_bit.size(); bit-- > 0;) {
    if (by_bit[bit].made > 0) fmt::print("  {:2}: {:3} of {:3} found\n", bit, by_bit[bit].found, by_bit[bit].made);
  }
}

/// Trains steps with one flip each, in an element of the only audited row, and counts.
inline void seed_flips(Device device, DType dtype, std::int64_t wanted) {
  const ModelConfig config = audited_model();
  const Sequences sequences = random_sequences(config, 1, 96, /*documents=*/false, 5);
  const int bits = static_cast<int>(8 * size_of(accumulator(dtype)));
  std::vector<FlipCount> by_bit(static_cast<std::size_t>(bits));
  FlipCount all;
  on_ring(config, {.dtype = dtype, .device = device, .audit_rows = 1}, sequences, [&](RankModel& rank) {
    AttentionAudit& audit = rank.model.audit();
    for (std::int64_t step = 1; all.large < wanted && step < 20 * wanted; ++step) {
      const auto draw = [&](std::uint64_t what, std::uint64_t bound) {
        return static_cast<std::int64_t>(
            random_below(11, Purpose::test, static_cast<std::uint64_t>(step) * 8 + what, bound));
      };
      const auto tensor = static_cast<AuditedTensor>(draw(0, audited_tensors));
      const std::int64_t element = tensor == AuditedTensor::logsumexp ? 0 : draw(1, 16);
      double change = 0, bound = -1;
      int bit = -1;
      audit.before_comparison = [&](AuditedTensor now, const AuditLocation& location, const TensorView& x) {
        if (now != tensor || bit >= 0) return;
        bit = static_cast<int>(draw(2, 8 * size_of(x.dtype)));
        const std::int64_t index =
            tensor == AuditedTensor::logsumexp
                ? (location.sequence * 4 + location.head) * x.dim(2) + location.token
                : ((location.sequence * x.dim(1) + location.token) * 4 + location.head) * 16 + element;
        change = flip(rank.stream, x, index, bit);
      };
      audit.compared = [&](AuditedTensor now, double, double of) {
        if (now == tensor && bound < 0) bound = of;
      };
      audit.begin_step(3, step, 0, 1, sequences.B, sequences.S);
      rank.train(sequences, sequences.denominator());
      rank.stream.synchronize();
      rank.parameters.begin_step();  // gradients of a flip may be infinite
      const bool found = audit.take_report().differences > 0;
      ASSERT_GE(bit, 0);
      ASSERT_GE(bound, 0);
      const bool large = !(change <= 4 * bound);
      all.add(large, found);
      by_bit[static_cast<std::size_t>(bit)].add(large, found);
    }
  });
  EXPECT_EQ(all.missed, 0);
  EXPECT_GE(all.large, wanted);
  fmt::print("{}: {} flips, {} of more than 4 bounds, {} of them missed\n", name_of(dtype), all.made, all.large,
             all.missed);
  print_flips(name_of(dtype), by_bit);
}

}  // namespace ringtrain::testing
