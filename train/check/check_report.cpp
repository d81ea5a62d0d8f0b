#include "train/check/check_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/counted.h"
#include "framework/profile/progress.h"

namespace ringtrain {

namespace {

/// All tensors of one kind.
struct Kind {
  std::string name;
  int tensors = 0;
  const CheckedTensor* worst = nullptr;  // the one nearest to its bound, or furthest beyond it
  double mean_share = 0;                 // of the largest mean error, as a fraction of its bound
  bool differs = false;
};

std::vector<Kind> kinds_of(const CheckReport& report) {
  std::vector<Kind> kinds;
  for (const CheckedTensor& tensor : report.tensors) {
    const std::string name = kind_of(tensor.name);
    auto kind = std::ranges::find(kinds, name, &Kind::name);
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {name, 0, &tensor});
    ++kind->tensors;
    kind->mean_share = std::max(kind->mean_share, share_of_mean_bound(tensor));
    kind->differs |= tensor.difference.has_value();
    if (share_of_bound(tensor) > share_of_bound(*kind->worst)) kind->worst = &tensor;
  }
  return kinds;
}

std::string line_of(const Kind& kind, std::size_t width) {
  const CheckedTensor& worst = *kind.worst;
  std::string text = fmt::format("  {:{}} {:>7} ", kind.name, width, kind.tensors);
  if (worst.bound == 0 && worst.largest == 0) return text + "exact\n";
  text += fmt::format("{:>9.2g} {:>9.2g} {:>9.2g}  {:>11.3g}  {:>10.3g}", worst.size, worst.largest, worst.bound,
                      share_of_bound(worst), kind.mean_share);
  return text + (kind.differs ? "  differs\n" : "\n");
}

std::string departure_text(const CheckedTensor& tensor) {
  const CheckDifference& difference = *tensor.difference;
  if (difference.of_mean) {
    return fmt::format(
        "wrong: {} differs first, as a whole\n  each element is within its bound, but on average the run is {} times "
        "the reference, and the bound on the difference from 1 is {:.3g}\n",
        tensor.name, difference.run, *tensor.mean_bound);
  }
  std::string text = fmt::format("wrong: {} differs first", tensor.name);
  if (!difference.location.empty()) text += fmt::format(", at {}", difference.location);
  if (difference.rank >= 0) text += fmt::format(", computed by rank {}", difference.rank);
  return text + fmt::format("\n  the run has {}, the reference {}; they are {:.3g} apart, and the bound is {:.3g}\n",
                            difference.run, difference.reference, std::abs(difference.run - difference.reference),
                            tensor.bound);
}

/// Returns the message about gradients that test nothing.
std::string untested_text(const std::vector<std::string>& names, const std::string& dump) {
  return fmt::format(
      "untested: {}{} zero in the run and in the reference, so a fault there would not show; check a later step "
      "(--steps), or weights that are not zero (--init-from, model.initializer_range); the dump is in {}\n",
      names.front(), names.size() > 1 ? fmt::format(" and {} more gradients are", names.size() - 1) : " is", dump);
}

}  // namespace

std::string kind_of(const std::string& name) {
  for (const std::string_view before : {"layer.", "layers."}) {
    const std::size_t at = name.find(before);
    if (at == std::string::npos || (at > 0 && name[at - 1] != '.')) continue;
    const std::size_t digits = at + before.size(), end = name.find('.', digits);
    if (end == std::string::npos || end == digits) continue;
    return name.substr(0, digits) + "*" + name.substr(end);
  }
  return name;
}

double share_of_bound(const CheckedTensor& tensor) {
  return tensor.largest == 0 ? 0 : tensor.largest / tensor.bound;
}

double share_of_mean_bound(const CheckedTensor& tensor) {
  return tensor.mean ? std::abs(*tensor.mean) / *tensor.mean_bound : 0;
}

std::string check_report(const CheckReport& report) {
  std::string text = report.run + "\n";
  for (const std::string& clause : report.cuts) text += "shortened for this check: " + clause + "\n";
  text += report.bounds + "\n";
  const std::vector<Kind> kinds = kinds_of(report);
  std::size_t width = 0;
  for (const Kind& kind : kinds) width = std::max(width, kind.name.size());
  text += fmt::format("  {:{}} {:>7} {:>9} {:>9} {:>9}  {:>11}  {:>10}\n", "tensor", width, "tensors", "max value",
                      "max error", "bound", "error/bound", "mean/bound");
  for (const Kind& kind : kinds) text += line_of(kind, width);
  const CheckedTensor* const first = report.first();
  const std::string times = fmt::format("the run took {}, the reference {}", human_duration(report.run_seconds),
                                        human_duration(report.reference_seconds));
  if (const auto untested = report.untested(); first == nullptr && !untested.empty()) {
    return text + untested_text(untested, report.dump);
  }
  if (first == nullptr) {
    return text + fmt::format("right: all {} tensors are within their bounds; {}\n", report.tensors.size(), times);
  }
  const auto departing = std::ranges::count_if(report.tensors, [](const auto& t) { return t.difference.has_value(); });
  text += departure_text(*first);
  return text + fmt::format("  {} of {} tensors differ; the dump is in {}; {}\n", departing, report.tensors.size(),
                            report.dump, times);
}

nlohmann::ordered_json check_json(const CheckReport& report) {
  const CheckedTensor* const first = report.first();
  nlohmann::ordered_json json{{"right", report.right()},
                              {"untested", report.untested()},
                              {"run", report.run},
                              {"cut", report.cuts},
                              {"bounds", report.bounds},
                              {"dump", report.dump},
                              {"run_seconds", report.run_seconds},
                              {"reference_seconds", report.reference_seconds}};
  if (first != nullptr) json["first_departure"] = first->name;
  for (const CheckedTensor& tensor : report.tensors) {
    nlohmann::ordered_json of_tensor{
        {"name", tensor.name}, {"largest", tensor.size}, {"error", tensor.largest}, {"bound", tensor.bound}};
    if (tensor.mean) {
      of_tensor["mean_error"] = *tensor.mean;
      of_tensor["mean_bound"] = *tensor.mean_bound;
    }
    if (const auto& difference = tensor.difference) {
      of_tensor["departure"] = {{"place", difference->location},
                                {"rank", difference->rank},
                                {"run", difference->run},
                                {"reference", difference->reference}};
    }
    json["tensors"].push_back(std::move(of_tensor));
  }
  return json;
}

}  // namespace ringtrain
