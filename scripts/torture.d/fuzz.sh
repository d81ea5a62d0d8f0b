# shellcheck shell=bash
# each fuzzer for 10 minutes (RINGTRAIN_FUZZ_SECONDS for another time)
./scripts/fuzz "${RINGTRAIN_FUZZ_SECONDS:-600}"
