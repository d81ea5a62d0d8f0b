// The audit of attention: no false alarm over many correct steps, tight bounds, detection of every seeded bit flip that
// changes an element by more than 4 times its bound, and the memory that it needs.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "layers/audit/audited_row.h"
#include "tests/layers/audit_case.h"

namespace ringtrain::testing {
namespace {

TEST(AttentionAudit, RightStepsRaiseNoAlarmAndComeNearTheirBounds) {
  expect_no_alarm(Device::cpu(), std::array{DType::float32, DType::float64}, /*steps=*/6, /*longest=*/3000);
}

TEST(AttentionAudit, FindsAThousandFlipsOfMoreThanFourBounds) {
  for (const DType dtype : {DType::float32, DType::float64}) seed_flips(Device::cpu(), dtype, 1000);
}

/// Rounds to bfloat16.
double narrow(double x) {
  return static_cast<double>(BFloat16::rounded(static_cast<float>(x)).value());
}

/// A row as tensor cores compute it: sums in float32; P and dS are rounded to bfloat16 before a product, O at the end.
struct TensorCoreRow {
  std::vector<double> q, dout, out, dq;
  std::vector<std::vector<double>> k, v;
  double logsumexp = 0;

  TensorCoreRow(std::int64_t D, std::int64_t n, double spread, std::uint64_t seed) {
    const auto vector = [&](std::uint64_t which, double scale) {
      std::vector<double> x(static_cast<std::size_t>(D));
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = narrow(scale * random_normal(seed, Purpose::test, which << 20 | i));
      }
      return x;
    };
    q = vector(0, spread);
    dout = vector(1, 1e-3);
    for (std::int64_t j = 0; j < n; ++j) {
      k.push_back(vector(2 * static_cast<std::uint64_t>(j) + 2, 1));
      v.push_back(vector(2 * static_cast<std::uint64_t>(j) + 3, 1));
    }
    compute(1 / std::sqrt(static_cast<double>(D)));
  }

 private:
  static float dot(const std::vector<double>& x, const std::vector<double>& y) {
    float sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += static_cast<float>(x[i]) * static_cast<float>(y[i]);
    return sum;
  }
  void compute(double scale) {
    const std::size_t D = q.size(), n = k.size();
    const auto narrowed = [](float x) { return BFloat16::rounded(x).value(); };
    std::vector<float> s(n), o(D, 0), gradient(D, 0);
    float most = -INFINITY, sum = 0;
    for (std::size_t j = 0; j < n; ++j) {
      s[j] = dot(q, k[j]) * static_cast<float>(scale);
      most = std::max(most, s[j]);
    }
    for (std::size_t j = 0; j < n; ++j) {
      const float p = std::exp(s[j] - most);
      sum += p;
      for (std::size_t i = 0; i < D; ++i) o[i] += narrowed(p) * static_cast<float>(v[j][i]);
    }
    const float lse = most + std::log(sum);
    logsumexp = static_cast<double>(lse);
    for (std::size_t i = 0; i < D; ++i) out.push_back(static_cast<double>(narrowed(o[i] / sum)));
    const float delta = dot(dout, out);
    for (std::size_t j = 0; j < n; ++j) {
      const float ds = narrowed(std::exp(s[j] - lse) * (dot(dout, v[j]) - delta));
      for (std::size_t i = 0; i < D; ++i) gradient[i] += ds * static_cast<float>(k[j][i]);
    }
    for (std::size_t i = 0; i < D; ++i) dq.push_back(static_cast<double>(gradient[i] * static_cast<float>(scale)));
  }
};

/// The same row in double, and the bounds.
struct ExactRow {
  explicit ExactRow(const TensorCoreRow& run)
      : memory(static_cast<std::size_t>(AuditedRow::doubles(std::ssize(run.q)))),
        row(memory, std::ssize(run.q), 1 / std::sqrt(static_cast<double>(run.q.size())), DType::bfloat16) {
    const auto set = [](std::span<double> to, const std::vector<double>& x) { std::ranges::copy(x, to.begin()); };
    const auto pass = [&](void (AuditedRow::*add)()) {
      for (std::size_t j = 0; j < run.k.size(); ++j) {
        set(row.key(), run.k[j]);
        set(row.value(), run.v[j]);
        (row.*add)();
      }
    };
    set(row.query(), run.q);
    row.begin_forward();
    pass(&AuditedRow::add_forward);
    row.end_forward();
    set(row.run_output(), run.out);
    set(row.output_gradient(), run.dout);
    row.begin_backward();
    pass(&AuditedRow::add_backward);
    row.end_backward();
  }
  /// Returns the largest error of each tensor relative to its bound; NaN counts as infinite.
  std::array<double, audited_tensors> errors_of(const TensorCoreRow& run) const {
    std::array<double, audited_tensors> error{};
    const auto add = [&](AuditedTensor tensor, double found, double exact, double bound) {
      double& most = error[static_cast<std::size_t>(tensor)];
      const double apart = std::abs(found - exact);
      most = std::max(most, std::isnan(apart) ? HUGE_VAL : apart / bound);
    };
    for (std::size_t i = 0; i < run.q.size(); ++i) {
      add(AuditedTensor::attention, run.out[i], row.attention()[i], row.attention_bound());
      add(AuditedTensor::query_gradient, run.dq[i], row.query_gradient()[i], row.query_gradient_bound());
    }
    add(AuditedTensor::logsumexp, run.logsumexp, row.logsumexp(), row.logsumexp_bound());
    return error;
  }

  std::vector<double> memory;
  AuditedRow row;
};

TEST(AuditedRow, CoversWhatTensorCoresRoundAndIsNotLoose) {
  std::array<double, audited_tensors> largest{};
  std::uint64_t seed = 0;
  for (const std::int64_t D : {16, 64, 128}) {
    for (const std::int64_t n : {1, 2, 3, 20, 300, 2500}) {
      for (const double spread : {1e-3, 0.1, 1.0, 4.0}) {
        for (int repeat = 0; repeat < (n < 100 ? 20 : 2); ++repeat) {
          const TensorCoreRow run(D, n, spread, ++seed);
          const auto error = ExactRow(run).errors_of(run);
          for (std::size_t i = 0; i < error.size(); ++i) {
            EXPECT_LE(error[i], 1) << i << " of " << n << " keys of " << D << ", spread " << spread;
            largest[i] = std::max(largest[i], error[i]);
          }
        }
      }
    }
  }
  fmt::print("{} rows; the largest error is {:.3f} of the bound of attention, {:.3f} logsumexp, {:.3f} grad.query\n",
             seed, largest[0], largest[1], largest[2]);
  for (const double error : largest) EXPECT_GT(error, 1.0 / 30);
}

TEST(AuditedRow, CoversLongSumsOfLikeValues) {  // whose partial sums grow with the number of keys
  constexpr std::int64_t D = 4, n = 200'000;
  double worst = 0;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    std::vector<double> memory(static_cast<std::size_t>(AuditedRow::doubles(D)));
    AuditedRow row(memory, D, 0.5, DType::float32);
    std::ranges::fill(row.query(), 0.0);  // all keys have equal weight
    row.begin_forward();
    float l = 0, o[D] = {};
    for (std::int64_t j = 0; j < n; ++j) {
      l += 1;
      for (std::int64_t i = 0; i < D; ++i) {
        const auto v =
            static_cast<float>(1 + random_uniform(seed, Purpose::test, static_cast<std::uint64_t>(j * D + i)));
        row.value()[static_cast<std::size_t>(i)] = static_cast<double>(v);
        row.key()[static_cast<std::size_t>(i)] = 1;
        o[i] += v;
      }
      row.add_forward();
    }
    row.end_forward();
    for (std::int64_t i = 0; i < D; ++i) {
      const double error = std::abs(static_cast<double>(o[i] / l) - row.attention()[static_cast<std::size_t>(i)]);
      worst = std::max(worst, error / row.attention_bound());
    }
  }
  EXPECT_LE(worst, 1.0 / 3);
  EXPECT_GE(worst, 1.0 / 300);
}

TEST(AttentionAudit, FindsWhatIsNoNumberAndPassesOverWhatWasNone) {
  const ModelConfig config = audited_model();
  const Sequences sequences = random_sequences(config, 1, 20, /*documents=*/false, 5);
  on_ring(config, {.audit_rows = 8}, sequences, [&](RankModel& rank) {
    AttentionAudit& audit = rank.model.audit();
    const auto differences = [&](const auto& broken) {
      audit.before_comparison = broken;
      audit.begin_step(3, 1, 0, 1, sequences.B, sequences.S);
      rank.train(sequences, sequences.denominator());
      return audit.take_report().differences;
    };
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(differences(nullptr), 0);
    EXPECT_EQ(differences([&](AuditedTensor now, const AuditLocation& location, const TensorView& x) {
                if (now == AuditedTensor::query_gradient)
                  set_element(x, (location.token * 4 + location.head) * 16, nan);
              }),
              8);
    fill(rank.stream, rank.parameters.weight(0), nan);  // the embedding: all of attention's inputs become NaN
    EXPECT_EQ(differences(nullptr), 0);
  });
}

TEST(AttentionAudit, PlansWhatItHoldsAndNothingWhereThereIsNone) {
  const ModelConfig config = audited_model();
  const Sequences sequences = random_sequences(config, 1, 20, /*documents=*/true, 5);
  const auto bytes = [&](std::int64_t rows) {
    std::size_t total = 0;
    on_ring(config, {.audit_rows = rows}, sequences,
            [&](RankModel& rank) { total = rank.allocator.current()[Tag::workspace]; });
    return total;
  };
  const std::int64_t D = config.head_dim;
  EXPECT_EQ(bytes(4) - bytes(0), static_cast<std::size_t>(4 * (72 * D + 64) * 8));
}

}  // namespace
}  // namespace ringtrain::testing
