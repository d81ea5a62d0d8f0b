// The results that follow from the sums of an evaluation: means, intervals, and the table.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/random.h"
#include "train/evaluation/evaluation_report.h"

namespace ringtrain::testing {
namespace {

EvaluationSummary summary_with(std::int64_t documents, double bits_per_byte) {
  EvaluationSummary summary;
  summary.targets.documents = documents;
  summary.targets.blocks.resize(static_cast<std::size_t>(documents));
  summary.trained_length = 64;
  summary.data = "a.h5";
  summary.targets.request.part = ScoredPart::validation;
  summary.results.push_back({16, 8, {2.5, {2.25, 2.75}}, std::exp(2.5), bits_per_byte, {}});
  return summary;
}

TEST(EvaluationTable, HasNoIntervalsOverFewDocuments) {
  const std::string one = evaluation_table(summary_with(1, 3.5)), few = evaluation_table(summary_with(19, 3.5)),
                    enough = evaluation_table(summary_with(20, 3.5));
  const std::string why = "No confidence intervals: they need at least 20 documents, and this evaluation has ";
  EXPECT_NE(one.find(why + "1."), std::string::npos) << one;
  EXPECT_NE(one.find("in 1 block of 1 document, "), std::string::npos) << one;
  EXPECT_NE(few.find(why + "19."), std::string::npos) << few;
  EXPECT_EQ(evaluation_json(summary_with(19, 3.5)).at("interval_meaningful"), false);
  for (const std::string& table : {one, few}) {
    EXPECT_EQ(table.find("2.2500"), std::string::npos) << table;
    EXPECT_EQ(table.find("Student"), std::string::npos) << table;
  }
  EXPECT_NE(enough.find("[2.2500, 2.7500]"), std::string::npos) << enough;
  EXPECT_EQ(enough.find("No confidence intervals"), std::string::npos) << enough;
}

TEST(EvaluationTable, HasBitsPerByteOnlyWhereBytesAreKnown) {
  const std::string known = evaluation_table(summary_with(20, 3.5)), unknown = evaluation_table(summary_with(20, NAN));
  EXPECT_NE(known.find(" 3.5000 "), std::string::npos) << known;
  EXPECT_EQ(unknown.find("nan"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("many bytes of text it holds, so bits/byte is unknown"), std::string::npos) << unknown;
  const auto written = nlohmann::json::parse(evaluation_json(summary_with(20, NAN)).dump());
  EXPECT_TRUE(written.at("results")[0].at("bits_per_byte").is_null());
}

TEST(Statistics, StudentsQuantilesAreThoseOfTheTables) {
  EXPECT_NEAR(student_t(0.95, 1), 12.7062047, 1e-6);
  EXPECT_NEAR(student_t(0.95, 2), 4.30265273, 1e-7);
  EXPECT_NEAR(student_t(0.95, 19), 2.09302405, 1e-7);
  EXPECT_NEAR(student_t(0.95, 100), 1.98397152, 1e-7);
  EXPECT_NEAR(student_t(0.99, 5), 4.03214298, 1e-7);
  EXPECT_NEAR(student_t(0.95, 1e6), 1.95996645, 1e-5);
}

TEST(Statistics, EqualDocumentsGiveTheIntervalOfAMean) {
  // Four documents of weight 2: the ratio estimator is the mean of their means, with the usual t interval.
  const std::vector<std::int64_t> lengths{10, 20}, documents{4, 9, 4, 2, 7, 9, 2, 7};
  const std::vector<double> means{1.0, 3.0, 1.5, 2.5};  // of documents 4, 9, 2, 7
  const auto mean_of = [&](std::int64_t d) { return means[d == 4 ? 0 : d == 9 ? 1 : d == 2 ? 2 : 3]; };
  std::vector<BlockSums> sums;
  for (const double shift : {0.0, 0.25}) {
    for (const std::int64_t d : documents) sums.push_back({mean_of(d) - shift, 1, 0.5, 1});
  }
  const auto results = summarize(lengths, sums, documents);
  EXPECT_DOUBLE_EQ(results[0].nll.value, 2.0);
  const double stddev = std::sqrt((1.0 + 1.0 + 0.25 + 0.25) / 3), half = student_t(0.95, 3) * stddev / 2;
  EXPECT_NEAR(results[0].nll.ci95.low, 2.0 - half, 1e-12);
  EXPECT_NEAR(results[0].nll.ci95.high, 2.0 + half, 1e-12);
  EXPECT_DOUBLE_EQ(results[0].perplexity, std::exp(2.0));
  EXPECT_NEAR(results[0].bits_per_byte, 2.0 * 2 / std::log(2.0), 1e-12);  // two targets per byte
  EXPECT_EQ(results[0].targets, 8);
  EXPECT_EQ(results[0].delta.value, 0);
  // Paired: every document improves equally, so the difference is certain although the means are not.
  EXPECT_NEAR(results[1].delta.value, -0.25, 1e-15);
  EXPECT_NEAR(results[1].delta.ci95.high - results[1].delta.ci95.low, 0, 1e-12);
  EXPECT_GT(results[1].nll.ci95.high - results[1].nll.ci95.low, 1);
}

TEST(Statistics, TheIntervalCoversTheTruthNinetyFiveTimesInAHundred) {
  // Documents of very different weight with random means: seeded draws, 2,000 times.
  int covered = 0;
  constexpr int times = 2000, count = 30;
  std::uint64_t draws = 0;
  for (int time = 0; time < times; ++time) {
    std::vector<BlockSums> row;
    std::vector<std::int64_t> documents;
    for (int d = 0; d < count; ++d) {
      const double weight = 1 + static_cast<double>(random_below(8, Purpose::test, draws++, 4));
      const double mean = 3 + random_normal(8, Purpose::test, draws++);
      row.push_back({weight * mean, weight, weight, weight});
      documents.push_back(d);
    }
    const std::vector<std::int64_t> lengths{10};
    const Estimate estimate = summarize(lengths, row, documents)[0].nll;
    covered += estimate.ci95.low <= 3 && 3 <= estimate.ci95.high;
  }
  EXPECT_NEAR(static_cast<double>(covered) / times, 0.945, 0.015);  // slightly liberal, as ratio estimators are
}

TEST(Statistics, OneDocumentHasNoInterval) {
  const std::vector<std::int64_t> lengths{10}, documents{5, 5};
  const auto results = summarize(lengths, std::vector<BlockSums>{{1, 1, 1, 1}, {2, 1, 1, 1}}, documents);
  EXPECT_DOUBLE_EQ(results[0].nll.value, 1.5);
  EXPECT_TRUE(std::isnan(results[0].nll.ci95.low));
}

}  // namespace
}  // namespace ringtrain::testing
