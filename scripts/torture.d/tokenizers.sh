# shellcheck shell=bash
# random tokenizers against the reference programs for 20 minutes (RINGTRAIN_FUZZ_SECONDS for another time)
configure release -DRINGTRAIN_TESTS=ON
build release tokenizer_probe
RINGTRAIN_BIN=$PWD/build/release/bin python3 tests/tokenizers/fuzz_test.py --seconds "${RINGTRAIN_FUZZ_SECONDS:-1200}"
