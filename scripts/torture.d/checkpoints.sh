# shellcheck shell=bash
# kills at random moments, a fault at each system call of a save and a resume, cut files and flipped bits, a full disk (15 minutes)
configure release -DRINGTRAIN_TESTS=ON
build release train_tests train
RINGTRAIN_TORTURE=1 RINGTRAIN_TORTURE_KILLS=200 RINGTRAIN_TORTURE_MPI_KILLS=100 RINGTRAIN_TORTURE_SEED=$RANDOM \
  build/release/bin/train_tests --gtest_filter='*EveryCall.*:ResumeFaults.*:Killed.*:Saver.*:*Nonfinite.*:BadState.*' --gtest_brief=1

say "The same with sharded weights, fewer kills"
RINGTRAIN_TORTURE_SHARD=weights RINGTRAIN_TORTURE_KILLS=50 RINGTRAIN_TORTURE_MPI_KILLS=50 \
  RINGTRAIN_TORTURE_SEED=$RANDOM build/release/bin/train_tests --gtest_brief=1 \
  --gtest_filter='ResumeFaults.*:Killed.*:Saver.*:*Nonfinite.*:BadState.*'

say "Damage, under AddressSanitizer and UndefinedBehaviorSanitizer"
configure asan -DRINGTRAIN_TESTS=ON
build asan train_tests framework_tests train
build/asan/bin/framework_tests --gtest_filter='DatasetLists.*' --gtest_brief=1
RINGTRAIN_TORTURE_FLIPS=2000 RINGTRAIN_TORTURE_SEED=$RANDOM build/asan/bin/train_tests --gtest_filter='Damage.*' \
  --gtest_brief=1

say "A full disk: a tmpfs of 1,600 KiB"
if [ "$(id -u)" -eq 0 ]; then
  RINGTRAIN_TORTURE_TMPFS=1 build/release/bin/train_tests --gtest_filter='FullDisk.*' --gtest_brief=1
else
  echo "skipped: only root may mount one"
fi
