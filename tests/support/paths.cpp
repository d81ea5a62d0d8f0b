#include "tests/support/paths.h"

namespace ringtrain::testing {

std::string source_folder() {
  return RINGTRAIN_SOURCE_DIR;
}

std::string binary_folder() {
  return RINGTRAIN_BINARY_DIR;
}

}  // namespace ringtrain::testing
