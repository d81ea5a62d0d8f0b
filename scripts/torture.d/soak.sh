# shellcheck shell=bash
# half an hour at full load, killed and resumed every 3 minutes, then the same run undisturbed (an hour in all)
configure release -DRINGTRAIN_TESTS=ON
build release train_tests train
RINGTRAIN_SOAK_SECONDS=${RINGTRAIN_SOAK_SECONDS:-1800} RINGTRAIN_SOAK_KILL_EVERY=${RINGTRAIN_SOAK_KILL_EVERY:-180} \
  build/release/bin/train_tests --gtest_filter='Soak.*'
