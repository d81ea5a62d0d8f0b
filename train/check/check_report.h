// The results of a check, for people and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "train/check/check.h"

namespace ringtrain {

/// Returns "layer.*.query" for "layer.12.query": the common name of all layers' tensors of a kind.
std::string kind_of(const std::string& name);
/// Returns the error as a fraction of the bound.
double share_of_bound(const CheckedTensor& tensor);
/// Returns the mean error as a fraction of its bound; 0 if it has none.
double share_of_mean_bound(const CheckedTensor& tensor);

/// Returns a table of the compared tensors, one line for a tensor of all layers, and the verdict.
std::string check_report(const CheckReport& report);
/// Returns the same as JSON, with an entry for every tensor.
nlohmann::ordered_json check_json(const CheckReport& report);

}  // namespace ringtrain
