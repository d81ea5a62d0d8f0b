#include "parallel/shared_error.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "parallel/collectives.h"

namespace ringtrain {

std::optional<SharedError> shared_error(Communicator& world, const std::optional<Error>& error, const CallSite& site) {
  const std::int64_t code = error ? static_cast<std::int64_t>(error->code()) : 0;
  const std::vector<std::int64_t> codes = all_gather(world, {&code, 1}, site);
  const auto first = std::find_if(codes.begin(), codes.end(), [](std::int64_t value) { return value != 0; });
  if (first == codes.end()) return std::nullopt;
  const int root = static_cast<int>(first - codes.begin());
  return SharedError(static_cast<ExitCode>(*first), broadcast_text(world, error ? error->what() : "", root, site));
}

}  // namespace ringtrain
