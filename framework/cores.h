// The processor cores that this process may use.
#pragma once

namespace ringtrain {

/// Returns how many cores the calling thread may run on: those of its affinity mask (taskset, a launcher that binds its
/// processes, a container's set), not those of the machine.
int available_cores();

}  // namespace ringtrain
