# shellcheck shell=bash
# A bare Debian 12 that has git and nothing else, and a clone in it: sourced by the parts that run there.
# RINGTRAIN_BARE_ROOT names its folder (default: build/bare-debian); an existing one is reused.
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
unmount # left by a killed run
own_folder "$work"

clone() {
  rm -rf --one-file-system "$checkout"
  git clone --quiet . "$checkout"
}

# Runs a command of the checkout on a machine without any of this machine's files, on which nothing is installed yet.
there() {
  say "In a bare Debian: $*"
  unmount
  rm -rf --one-file-system "$root"
  cp --archive "$pristine" "$root"
  # Its root is a separate mount: the tests of two hosts make network namespaces, whose tool requires one.
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount -t sysfs sysfs "$root/sys"
  mount --rbind --make-rslave /dev "$root/dev"
  mount --bind "$checkout" "$root/srv"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  cp /etc/hosts "$root/etc/hosts" # without it, MPI searches for localhost for seconds at every start
  local start=$SECONDS
  env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" bash -c "cd /srv && $*" </dev/null
  say "It took $((SECONDS - start)) seconds"
}
