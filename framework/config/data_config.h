// The section data of a config.
#pragma once

#include <string>
#include <vector>

#include "framework/config/choices.h"

namespace ringtrain {

struct DataSource {
  std::string path;
  double weight = 1.0;
};

struct DataConfig {
  std::vector<DataSource> train;  // a path, or a list of {path, weight}
  std::string validation;         // empty: the validation part of the first file
  Packing packing = Packing::documents;
  LongDocuments longer = LongDocuments::automatic;
};

}  // namespace ringtrain
