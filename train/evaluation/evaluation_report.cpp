#include "train/evaluation/evaluation_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>

#include "framework/error.h"
#include "framework/storage/files.h"

namespace ringtrain {

namespace {

nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json interval_json(const Interval& interval) {
  return nlohmann::ordered_json::array({number(interval.low), number(interval.high)});
}

std::string interval_text(const Interval& interval) {
  return std::isfinite(interval.low) ? fmt::format("[{:.4f}, {:.4f}]", interval.low, interval.high) : "-";
}

}  // namespace

EvaluationSummary summary_of(const std::string& checkpoint, std::int64_t trained_length,
                             const EvaluationTargets& targets, std::vector<LengthResult> results) {
  EvaluationSummary summary;
  summary.checkpoint = checkpoint;
  summary.trained_length = trained_length;
  summary.documents = targets.documents;
  summary.target_blocks = std::ssize(targets.blocks);
  summary.stride = targets.stride;
  summary.target_tokens = results.empty() ? 0 : results.front().targets;
  summary.target_hash = targets.hash;
  summary.whole_file = targets.whole_file;
  summary.results = std::move(results);
  return summary;
}

nlohmann::ordered_json evaluation_json(const EvaluationSummary& summary) {
  nlohmann::ordered_json json;
  if (!summary.checkpoint.empty()) json["checkpoint"] = summary.checkpoint;
  json["trained_length"] = summary.trained_length;
  json["documents"] = summary.documents;
  if (summary.stride > 0) {
    json["stride"] = summary.stride;
  } else {
    json["target_blocks"] = summary.target_blocks;
  }
  json["target_tokens"] = summary.target_tokens;
  json["target_hash"] = summary.target_hash;
  json["interval_meaningful"] = summary.documents >= min_documents;
  json["results"] = nlohmann::ordered_json::array();
  for (const LengthResult& result : summary.results) {
    json["results"].push_back({{"context_length", result.context_length},
                               {"beyond_trained_length", result.context_length > summary.trained_length},
                               {"nll", result.nll.value},
                               {"perplexity", number(result.perplexity)},
                               {"bits_per_byte", number(result.bits_per_byte)},
                               {"ci95", interval_json(result.nll.ci95)},
                               {"delta_nll", result.delta.value},
                               {"delta_ci95", interval_json(result.delta.ci95)}});
  }
  return json;
}

bool is_evaluation_file(const std::string& path) {
  constexpr std::int64_t max_bytes = std::int64_t{16} << 20;
  try {
    const auto json = nlohmann::json::parse(read_file(path, ExitCode::usage, max_bytes));
    constexpr std::array keys{"checkpoint", "trained_length", "documents", "target_tokens", "target_hash", "results"};
    return json.is_object() && std::ranges::all_of(keys, [&](const char* key) { return json.contains(key); });
  } catch (const std::exception&) {
    return false;
  }
}

std::string evaluation_table(const EvaluationSummary& summary) {
  const char* const part = summary.whole_file ? " (of the whole file: it has no validation part)" : "";
  std::string text =
      summary.stride > 0
          ? fmt::format("{} target tokens, all of {} documents{}, by windows that move by {} tokens; hash {}\n\n",
                        summary.target_tokens, summary.documents, part, summary.stride, summary.target_hash)
          : fmt::format("{} target tokens in {} blocks of {} documents{}, the same at every length; hash {}\n\n",
                        summary.target_tokens, summary.target_blocks, summary.documents, part, summary.target_hash);
  text += fmt::format("{:>9}  {:>10}  {:>8}  {:>10}  {:>18}  {:>9}  {:>20}\n", "context", "perplexity", "nll",
                      "bits/byte", "95% of nll", "change", "95% of change");
  bool beyond = false;
  for (const LengthResult& result : summary.results) {
    const bool past = result.context_length > summary.trained_length;
    beyond |= past;
    const bool first = &result == &summary.results.front();
    text += fmt::format("{:>8}{}  {:>10.4f}  {:>8.4f}  {:>10.4f}  {:>18}  {:>9}  {:>20}\n", result.context_length,
                        past ? "*" : " ", result.perplexity, result.nll.value, result.bits_per_byte,
                        interval_text(result.nll.ci95), first ? "-" : fmt::format("{:+.4f}", result.delta.value),
                        first ? "-" : interval_text(result.delta.ci95));
  }
  text +=
      "\nnll in nats a target token; change: nll minus that of the shortest context, paired by document; intervals:\n"
      "ratio estimator over documents with Student's t\n";
  if (beyond) text += fmt::format("*: longer than the {} tokens this model was trained on\n", summary.trained_length);
  if (summary.documents < min_documents) {
    text += fmt::format("With {} documents, fewer than {}, a confidence interval over documents would mean nothing.\n",
                        summary.documents, min_documents);
  }
  return text;
}

}  // namespace ringtrain
