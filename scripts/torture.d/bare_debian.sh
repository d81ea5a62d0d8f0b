# shellcheck shell=bash
# the README's scripts and a build of the benchmarks, from a fresh clone in a bare Debian 12 (root, network; an hour)
# RINGTRAIN_BARE_ROOT names its folder (default: build/bare-debian); one that is there already is used again.
root=${RINGTRAIN_BARE_ROOT:-$PWD/build/bare-debian}
if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
  say "SKIPPED: a bare Debian needs root and debootstrap (apt-get install debootstrap)"
  exit 0
fi

unmount() {
  local path
  for path in /dev /sys /proc ''; do
    if mountpoint --quiet "$root$path"; then umount --recursive --lazy "$root$path"; fi
  done
}
if [ ! -e "$root/usr/bin/apt-get" ]; then debootstrap --variant=minbase --include=ca-certificates bookworm "$root"; fi
trap unmount EXIT
# Its root is a mount of its own: the tests of two hosts make network namespaces, whose tool wants one.
mountpoint --quiet "$root" || mount --bind "$root" "$root"
mountpoint --quiet "$root/proc" || mount -t proc proc "$root/proc"
mountpoint --quiet "$root/sys" || mount -t sysfs sysfs "$root/sys"
mountpoint --quiet "$root/dev" || mount --rbind --make-rslave /dev "$root/dev"
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp /etc/hosts "$root/etc/hosts"  # without it MPI looks for localhost for seconds at every start
rm -rf --one-file-system "$root/root/ringtrain"
git clone --quiet . "$root/root/ringtrain"

# Runs a command of the fresh clone as a machine would that has nothing of this one.
there() {
  say "In the bare Debian: $*"
  env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" bash -c "cd /root/ringtrain && $*" </dev/null
}
there ./scripts/quickstart
there ./scripts/install-deps bench
there "source scripts/common.sh && configure release -DRINGTRAIN_BENCH=ON -DRINGTRAIN_TESTS=OFF && build release"
there ./scripts/test --quick
