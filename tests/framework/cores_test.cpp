// Cores are those of the affinity mask, not those of the machine.
#include "framework/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace ringtrain {
namespace {

TEST(Cores, AreThoseOfTheAffinityMask) {
  cpu_set_t own;
  ASSERT_EQ(::sched_getaffinity(0, sizeof own, &own), 0);
  EXPECT_EQ(available_cores(), CPU_COUNT(&own));
  std::thread([&] {  // each thread has its own mask
    cpu_set_t one;
    CPU_ZERO(&one);
    int first = 0;
    while (!CPU_ISSET(first, &own)) ++first;
    CPU_SET(first, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(available_cores(), 1);
  })
      .join();
  EXPECT_EQ(available_cores(), CPU_COUNT(&own));
}

}  // namespace
}  // namespace ringtrain
