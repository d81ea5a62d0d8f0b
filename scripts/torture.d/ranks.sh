# shellcheck shell=bash
# twice 50 runs of 4 processes, with sharded optimizer and weights, one of which is killed, stopped or slowed somewhere: each ends as promised, none is left
# The number of runs: RINGTRAIN_TORTURE_TRIALS (default 50).
configure release -DRINGTRAIN_TESTS=ON
build release
for shard in optimizer weights; do
  RINGTRAIN_TORTURE_SHARD=$shard RINGTRAIN_TORTURE_TRIALS=${RINGTRAIN_TORTURE_TRIALS:-50} \
    build/release/bin/train_tests --gtest_filter='*RankFaults*' --gtest_brief=1
done
say "RankFaults: every one of ${RINGTRAIN_TORTURE_TRIALS:-50} trials ended as promised"
