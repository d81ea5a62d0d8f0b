# shellcheck shell=bash
# 13 signals, one after each call of an export that changes a file: some 500 interrupted exports (a minute)
configure release -DRINGTRAIN_TESTS=ON
build release models_tests export
RINGTRAIN_TORTURE=1 build/release/bin/models_tests --gtest_filter='ExportFaults.*' --gtest_brief=1
