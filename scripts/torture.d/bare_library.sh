# shellcheck shell=bash
# the library's examples against an installed prefix, in a bare Debian 12 with the README's packages (root, network)
source scripts/torture.d/bare_machine.bash

clone
# The library: installed, and each example as a separate project; the last one compiles a clone of it.
there "./scripts/install-deps && cmake --preset release -DRINGTRAIN_TESTS=OFF &&
  cmake --build --preset release --target programs && cmake --install build/release --prefix /opt/ringtrain &&
  mv /opt/ringtrain /opt/moved && cd /root &&
  for name in ring train model; do
    cmake -S /srv/examples/\$name -B \$name -DCMAKE_PREFIX_PATH=/opt/moved -DCMAKE_BUILD_TYPE=Release &&
      cmake --build \$name || exit 1
    [ \$name != ring ] || { ring/ring_example && echo \"From a clone to the first example: \$SECONDS seconds\"; } ||
      exit 1
  done &&
  train/train_example /srv/examples/train/counting.yaml counting &&
  /opt/moved/bin/ringtrain prepare --synthetic recall --documents 60 --length 256 --pairs 4 --validation-fraction 0.2 \
    --output tokens.h5 &&
  model/model_example /srv/examples/model/gated.yaml gated tokens.h5 mesh.data=2 mesh.sequence=2 &&
  git config --global --add safe.directory /srv/.git &&
  cmake -S /srv/examples/fetch_content -B fetched -DRINGTRAIN_REPOSITORY=/srv -DCMAKE_BUILD_TYPE=Release &&
  cmake --build fetched --target ring_example --parallel && fetched/ring_example"
