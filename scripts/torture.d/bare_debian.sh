# shellcheck shell=bash
# most scripts of the README and docs, each in a bare Debian 12 that has git and nothing else (root, network; an hour)
source scripts/torture.d/bare_machine.bash

# From clone to end. Each script is followed by scripts that use what it has built.
clone
there ./scripts/quickstart
there ./scripts/recall
there ./bench/memory --without-long
# It may miss its targets on a machine that others use, but it must complete.
there "{ ./bench/compare --quick --json build/bare.json || true; } && test -s build/bare.json"
clone
there ./scripts/test --quick
there ./scripts/dev structure
there ./scripts/same-bits HEAD
there ./scripts/mutate 01
there ./bench/planning/predict --seconds 60
there ./scripts/fuzz 1
there "./scripts/bundle --emulated build/gpu-bundle && build/gpu-bundle/gpu-check --short --quick || [ \$? -eq 3 ]"
there "./scripts/install-deps api && ./scripts/api"
there ./scripts/install-deps build tests bench format lint fuzz pictures api
