// One table across hardware and numbers of devices: of each the best way to run a config, what it takes, and the flags
// to copy. Pure, but for advice().
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "extras/planner/search.h"

namespace ringtrain {

/// A hardware file, by the name that was given, and the price of a device's hour (0: not known).
struct Offer {
  std::string name;
  Hardware hardware;
  double device_price = 0;
};

struct Decision {
  Offer offer;
  std::int64_t devices = 0;
  SearchResult search = {};
  Plan plan = {};                        // of the choice, without its longest context; meaningless where nothing fits
  std::string flags = {};                // that give the config its choices; with tokens given, their steps
  std::vector<std::string> advice = {};  // where nothing fits: why, and what would help
  bool fits() const { return plan.fits; }
};

/// Returns a decision for each offer and number of devices, in this order. batches: as of search_plans(). The request's
/// own hardware does not count. Throws what search_plans() does.
std::vector<Decision> decide(const PlanRequest& request, const std::vector<Offer>& offers,
                             const std::vector<std::int64_t>& devices, const std::vector<std::int64_t>& batches);

/// Returns the table as text: the rows, their flags, which one is fastest, cheapest, and why others do not fit.
std::string decision_table(const std::vector<Decision>& decisions);
/// Returns the rows as a JSON list.
nlohmann::ordered_json decisions_json(const std::vector<Decision>& decisions);

}  // namespace ringtrain
