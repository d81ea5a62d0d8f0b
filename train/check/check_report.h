// What a check found, for people and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "train/check/check.h"

namespace ringtrain {

/// Returns "layer.*.query" of "layer.12.query": what all layers' tensors of a kind have in common.
std::string kind_of(const std::string& name);
/// Returns the error as a part of the bound.
double share_of_bound(const CheckedTensor& tensor);
/// Returns the mean error as a part of its bound; 0 where there is none.
double share_of_mean_bound(const CheckedTensor& tensor);

/// Returns a table of what was compared, all layers of a tensor in one line, and the verdict.
std::string check_report(const CheckReport& report);
/// Returns the same as JSON, every tensor on its own (docs/debugging.md has its fields).
nlohmann::ordered_json check_json(const CheckReport& report);

}  // namespace ringtrain
