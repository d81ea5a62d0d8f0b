# shellcheck shell=bash
# every script of the README and docs, each in a bare Debian 12 that has git and nothing else (root, network; an hour)
# RINGTRAIN_BARE_ROOT names its folder (default: build/bare-debian); one that is there already is used again.
pristine=${RINGTRAIN_BARE_ROOT:-$PWD/build/bare-debian}
if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
  say "SKIPPED: a bare Debian needs root and debootstrap (apt-get install debootstrap)"
  exit 0
fi
if [ ! -e "$pristine/usr/bin/apt-get" ]; then
  debootstrap --variant=minbase --include=ca-certificates,git bookworm "$pristine"
fi
work=$pristine.work
root=$work/used
checkout=$work/checkout

unmount() {
  local path
  for path in /srv /dev /sys /proc ''; do
    if mountpoint --quiet "$root$path"; then umount --recursive --lazy "$root$path"; fi
  done
}
trap unmount EXIT
unmount # what a killed run left
own_folder "$work"

clone() {
  rm -rf --one-file-system "$checkout"
  git clone --quiet . "$checkout"
}

# Runs a command of the checkout on a machine that has nothing of this one and has installed nothing yet.
there() {
  say "In a bare Debian: $*"
  unmount
  rm -rf --one-file-system "$root"
  cp --archive "$pristine" "$root"
  # Its root is a mount of its own: the tests of two hosts make network namespaces, whose tool wants one.
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount -t sysfs sysfs "$root/sys"
  mount --rbind --make-rslave /dev "$root/dev"
  mount --bind "$checkout" "$root/srv"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  cp /etc/hosts "$root/etc/hosts" # without it MPI looks for localhost for seconds at every start
  local start=$SECONDS
  env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" bash -c "cd /srv && $*" </dev/null
  say "It took $((SECONDS - start)) seconds"
}

# From clone to end. Behind each stand scripts that find what it has built.
clone
there ./scripts/quickstart
there ./scripts/recall
there ./bench/memory --without-long
# It may miss what must be reached, on a machine that others use, but it comes to its end.
there "{ ./bench/compare --quick --json build/bare.json || true; } && test -s build/bare.json"
clone
there ./scripts/test --quick
there ./scripts/dev structure
there ./scripts/same-bits HEAD
there ./scripts/mutate 01
there ./bench/planning/predict --seconds 60
there ./scripts/fuzz 1
there "./scripts/bundle --emulated build/gpu-bundle && build/gpu-bundle/gpu-check --short --quick || [ \$? -eq 3 ]"
# The library: installed, and each example a project of its own; the last one compiles a clone of it.
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
there "./scripts/install-deps api && ./scripts/api"
there ./scripts/install-deps build tests bench format lint fuzz pictures api
