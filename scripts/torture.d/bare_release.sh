# shellcheck shell=bash
# the release's archive and its Debian package in bare Debian 12 and 13, which have no compiler (root, network)
if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
  say "SKIPPED: a bare Debian needs root and debootstrap (apt-get install debootstrap)"
  exit 0
fi
# RINGTRAIN_RELEASE names the folder of a release; without it, one is made. RINGTRAIN_BARE_ROOTS keeps the systems.
release=${RINGTRAIN_RELEASE:-$PWD/build/a-release}
roots=${RINGTRAIN_BARE_ROOTS:-$PWD/build/bare-roots}
if [ ! -e "$release/SHA256SUMS" ]; then ./scripts/package "$release"; fi
(cd "$release" && sha256sum --check SHA256SUMS)

# A user's first steps, with the seconds from the packed archive to the end of the first training step.
# shellcheck disable=SC2016 # the shell of the bare system expands it
first_steps='
set -eu
begin=$(date +%s.%N)
cd
tar -xf /srv/release/ringtrain-*-linux-x86_64.tar.gz
tree=$(echo ringtrain-*)
"$tree/bin/ringtrain" --version
"$tree/bin/prepare" --input "$tree/share/doc/ringtrain" --output text.h5
"$tree/bin/train" --config "$tree/share/ringtrain/configs/tiny.yaml" --set data.train=text.h5 --stop-after 1 --output run
echo "The first step ended after $(echo "$begin $(date +%s.%N)" | awk "{ print \$2 - \$1 }") seconds"
"$tree/bin/train" --resume run --set training.steps=2
"$tree/bin/plan" --config "$tree/share/ringtrain/configs/long_ctx_gpu.yaml" --hardware h100 --mesh 1x8 >plan.txt
for build in "$tree"/libexec/*; do
  RINGTRAIN_BUILD=${build##*/ringtrain-} "$tree/bin/ringtrain" --version || echo "$build does not run on this processor"
done
dpkg --install /srv/release/ringtrain_*_amd64.deb
ringtrain --version
ringtrain evaluate --checkpoint run --data text.h5 --context-lengths 32,64 --target-tokens 8
ringtrain report run
'
for suite in bookworm trixie; do
  pristine=$roots/$suite root=$roots/used
  if [ ! -e "$pristine/usr/bin/dpkg" ]; then debootstrap --variant=minbase "$suite" "$pristine"; fi
  say "In a bare Debian $suite"
  rm -rf --one-file-system "$root"
  cp --archive "$pristine" "$root"
  mkdir "$root/srv/release"
  cp "$release"/ringtrain* "$root/srv/release/"
  unshare --mount --pid --fork --mount-proc="$root/proc" env -i HOME=/srv PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    chroot "$root" bash -c "$first_steps" </dev/null
done
