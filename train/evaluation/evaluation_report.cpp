#include "train/evaluation/evaluation_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/counted.h"
#include "framework/error.h"
#include "train/evaluation/scored_part.h"

namespace ringtrain {

namespace {

/// Returns a cell; "-" if there are too few documents for an interval.
std::string interval_text(const EvaluationSummary& summary, const Interval& interval) {
  if (summary.targets.documents < min_documents) return "-";
  return fmt::format("[{:.4f}, {:.4f}]", interval.low, interval.high);
}

/// Returns the table of buckets of positions; "" if there is none.
std::string position_table(const EvaluationSummary& summary) {
  std::string rows;
  for (const LengthResult& result : summary.results) {
    for (const PositionResult& bucket : result.by_position) {
      const bool longest = &result == &summary.results.back();
      rows +=
          fmt::format("{:>9}  {:>15}  {:>9}  {:>8.4f}  {:>18}  {:>9}  {:>20}\n", result.context_length,
                      fmt::format("{}-{}", bucket.first, bucket.last), bucket.targets, bucket.nll.value,
                      interval_text(summary, bucket.nll.ci95), longest ? "-" : fmt::format("{:+.4f}", bucket.cut.value),
                      longest ? "-" : interval_text(summary, bucket.cut.ci95));
    }
  }
  if (rows.empty()) return "";
  return fmt::format(
      "\nAll predictions of the same windows, by position\n\n{:>9}  {:>15}  {:>9}  {:>8}  {:>18}  {:>9}  "
      "{:>20}\n{}\nposition: number of tokens before the target in its window; cut: nll minus the nll of the same "
      "tokens in the\nwindow of the longest context, paired by document\n",
      "context", "position", "targets", "nll", "95% CI of nll", "cut", "95% CI of cut", rows);
}

/// Returns the line that says what was scored.
std::string scored_line(const EvaluationSummary& summary) {
  const std::string scored = fmt::format("scored: {}\n{}", part_text(summary.data, summary.targets.request),
                                         counted(summary.target_tokens(), "target token"));
  const std::string documents = counted(summary.targets.documents, "document");
  const EvaluationRequest& request = summary.targets.request;
  const std::string begin =
      request.begin_token ? fmt::format("\neach window begins with token {}", *request.begin_token) : "";
  if (request.stride > 0) {
    return fmt::format("{} of {} (whole documents), in windows that move by {}; hash {}{}\n\n", scored, documents,
                       counted(request.stride, "token"), summary.targets.hash, begin);
  }
  return fmt::format("{} in {} of {}, the same at every length; hash {}{}\n\n", scored,
                     counted(std::ssize(summary.targets.blocks), "block"), documents, summary.targets.hash, begin);
}

/// Returns a row of the table for each context length.
std::string length_rows(const EvaluationSummary& summary) {
  std::string text;
  for (const LengthResult& result : summary.results) {
    const bool first = &result == &summary.results.front();
    const std::string bits = std::isfinite(result.bits_per_byte) ? fmt::format("{:.4f}", result.bits_per_byte) : "-";
    text += fmt::format("{:>8}{}  {:>10.4f}  {:>8.4f}  {:>10}  {:>18}  {:>9}  {:>20}\n", result.context_length,
                        result.context_length > summary.trained_length ? "*" : " ", result.perplexity, result.nll.value,
                        bits, interval_text(summary, result.nll.ci95),
                        first ? "-" : fmt::format("{:+.4f}", result.delta.value),
                        first ? "-" : interval_text(summary, result.delta.ci95));
  }
  return text;
}

/// Returns notes that readers need to understand the numbers.
std::string table_notes(const EvaluationSummary& summary) {
  const LengthResult &shortest = summary.results.front(), &longest = summary.results.back();
  const EvaluationTargets& targets = summary.targets;
  std::string text;
  if (targets.long_enough < targets.long_enough_for_shortest) {
    text += fmt::format(
        "{} are long enough for {} tokens, but only {} for {}: a different longest context scores different "
        "documents.\n",
        counted(targets.long_enough_for_shortest, "document"), shortest.context_length, targets.long_enough,
        longest.context_length);
  }
  if (std::ranges::any_of(summary.results, [](const LengthResult& row) { return !std::isfinite(row.bits_per_byte); })) {
    text += "The token file does not say how many bytes of text it holds, so bits/byte is unknown.\n";
  }
  if (std::ranges::any_of(summary.results,
                          [&](const LengthResult& row) { return row.context_length > summary.trained_length; })) {
    text += fmt::format("*: longer than the {} tokens for which this model was trained\n", summary.trained_length);
  }
  if (targets.request.stride == shortest.context_length) {
    text +=
        "The windows do not overlap: the first token of each is not scored, and the tokens after it have little "
        "context.\n";
  }
  if (summary.targets.documents < min_documents) {
    text += fmt::format("No confidence intervals: they need at least {} documents, and this evaluation has {}.\n",
                        min_documents, summary.targets.documents);
  }
  return text;
}

}  // namespace

nlohmann::ordered_json evaluation_json(const EvaluationSummary& summary) {
  const EvaluationTargets& targets = summary.targets;
  nlohmann::ordered_json json;
  if (!summary.checkpoint.empty()) json["checkpoint"] = summary.checkpoint;
  json["trained_length"] = summary.trained_length;
  json["part"] = targets.request.part == ScoredPart::validation ? "validation" : "whole";
  const std::optional<bool> trained_on = targets.request.trained_on;
  json["trained_on"] = trained_on ? nlohmann::ordered_json(*trained_on) : nlohmann::ordered_json(nullptr);
  json["documents"] = targets.documents;
  if (targets.request.stride > 0) {
    json["stride"] = targets.request.stride;
  } else {
    json["target_blocks"] = targets.blocks.size();
  }
  json["target_tokens"] = summary.target_tokens();
  json["target_hash"] = targets.hash;
  if (targets.request.begin_token) json["begin_token"] = *targets.request.begin_token;
  json["interval_meaningful"] = targets.documents >= min_documents;
  if (!summary.checkpoint.empty()) {
    for (const TargetBlock& block : targets.blocks) json["scored"].push_back({block.document, block.end});
  }
  json["results"] = nlohmann::ordered_json::array();
  for (const LengthResult& result : summary.results) {
    json["results"].push_back({{"context_length", result.context_length},
                               {"beyond_trained_length", result.context_length > summary.trained_length},
                               {"nll", result.nll.value},
                               {"perplexity", result.perplexity},
                               {"bits_per_byte", result.bits_per_byte},
                               {"ci95", {result.nll.ci95.low, result.nll.ci95.high}},
                               {"delta_nll", result.delta.value},
                               {"delta_ci95", {result.delta.ci95.low, result.delta.ci95.high}}});
    for (const PositionResult& bucket : result.by_position) {
      json["results"].back()["by_position"].push_back({{"first", bucket.first},
                                                       {"last", bucket.last},
                                                       {"targets", bucket.targets},
                                                       {"nll", bucket.nll.value},
                                                       {"ci95", {bucket.nll.ci95.low, bucket.nll.ci95.high}},
                                                       {"cut_nll", bucket.cut.value},
                                                       {"cut_ci95", {bucket.cut.ci95.low, bucket.cut.ci95.high}}});
    }
  }
  for (const auto& [name, result] : summary.metrics) json[name] = *result.json;
  return json;
}

std::string evaluation_table(const EvaluationSummary& summary) {
  std::string text = scored_line(summary);
  text += fmt::format("{:>9}  {:>10}  {:>8}  {:>10}  {:>18}  {:>9}  {:>20}\n", "context", "perplexity", "nll",
                      "bits/byte", "95% CI of nll", "change", "95% CI of change");
  text += length_rows(summary);
  text += "\nnll: nats per target token; change: nll minus the nll at the shortest context, paired by document";
  text +=
      summary.targets.documents >= min_documents ? "; 95% CI:\nratio estimator over documents, Student's t\n" : "\n";
  text += table_notes(summary);
  text += position_table(summary);
  for (const auto& [name, result] : summary.metrics) text += result.lines;
  return text;
}

}  // namespace ringtrain
