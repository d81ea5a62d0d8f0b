#include "framework/system/system_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace ringtrain {

namespace {

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

/// Returns the number in a file that contains one, or -1 if there is none ("max" included).
std::int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = -1;
  return file >> value ? value : -1;
}

/// Returns the number after `key` in a file of "key number" lines, or 0 if there is none.
std::int64_t number_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return 0;
}

/// Returns the free memory of one control group; cached pages of files count as free, because they can be dropped.
std::int64_t left_by_group(const std::string& folder, const char* limit_name, const char* usage_name) {
  const std::int64_t limit = number_in(folder + "/" + limit_name);
  const std::int64_t usage = number_in(folder + "/" + usage_name);
  if (limit < 0 || usage < 0 || limit > (std::int64_t{1} << 60)) return unlimited;
  const std::string stat = folder + "/memory.stat";
  // The usage includes the groups below; in version 1, only the totals do as well.
  const std::int64_t files = std::max(number_of(stat, "inactive_file") + number_of(stat, "active_file"),
                                      number_of(stat, "total_inactive_file") + number_of(stat, "total_active_file"));
  return std::max<std::int64_t>(0, limit - std::max<std::int64_t>(0, usage - files));
}

/// Returns the minimum of what the groups from `root` + `path` up to `root` leave.
std::int64_t left_by_hierarchy(const std::string& root, std::string path, const char* limit_name,
                               const char* usage_name) {
  std::int64_t left = left_by_group(root, limit_name, usage_name);
  for (; path.starts_with('/'); path.resize(path.rfind('/'))) {
    left = std::min(left, left_by_group(root + path, limit_name, usage_name));
  }
  return left;
}

std::int64_t left_by_control_groups(const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::int64_t left = unlimited;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers.empty()) {
      left = std::min(left, left_by_hierarchy(mount, path, "memory.max", "memory.current"));
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      left =
          std::min(left, left_by_hierarchy(mount + "/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes"));
    }
  }
  return left;
}

std::int64_t left_by_address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return unlimited;
  const std::int64_t pages = std::max<std::int64_t>(0, number_in("/proc/self/statm"));
  return std::max<std::int64_t>(0, static_cast<std::int64_t>(limit.rlim_cur) - pages * sysconf(_SC_PAGESIZE));
}

}  // namespace

std::int64_t available_memory(const std::string& root) {
  std::int64_t left = unlimited;
  if (const std::int64_t kib = number_of(root + "/proc/meminfo", "MemAvailable:"); kib > 0) left = kib * 1024;
  return std::min({left, left_by_control_groups(root), left_by_address_space()});
}

}  // namespace ringtrain
