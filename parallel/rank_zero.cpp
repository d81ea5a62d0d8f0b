#include "parallel/rank_zero.h"

#include <chrono>

#include "framework/system/run_aside.h"
#include "parallel/collectives.h"

namespace ringtrain {

void run_on_rank_zero(Communicator& world, const std::function<void()>& body) {
  if (world.size() == 1) return body();
  std::future<void> work;
  if (world.rank() == 0) work = run_aside(body);
  std::int64_t done = 0;
  while (!done) {
    if (world.rank() == 0) done = work.wait_for(std::chrono::milliseconds(200)) == std::future_status::ready;
    all_reduce_max(world, {&done, 1}, {"waiting for work of rank 0"});
  }
  if (world.rank() == 0) work.get();
}

}  // namespace ringtrain
