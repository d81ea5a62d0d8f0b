# shellcheck shell=bash
# 500 runs under scripts/launch, signaled at random moments of their first 2 seconds: each saves or ends, none is left
# The number of runs: RINGTRAIN_TORTURE_LAUNCHES (default 500).
configure release -DRINGTRAIN_TESTS=ON
build release
RINGTRAIN_TORTURE_LAUNCHES=${RINGTRAIN_TORTURE_LAUNCHES:-500} build/release/bin/train_tests \
  --gtest_filter='Launched.ASignalAtAnyMoment*' --gtest_brief=1
say "Launched: every one of ${RINGTRAIN_TORTURE_LAUNCHES:-500} tries saved or ended as promised"
