# shellcheck shell=bash
# Functions that the scripts share; sourced, not run. The working directory becomes the repository's root.
set -euo pipefail
unset CDPATH # with it, cd may enter another folder
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CCACHE_BASEDIR=$PWD  # with relative paths, an object of one preset serves the others

say() { printf '\n==> %s\n' "$*"; }

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# help_if_asked ARGUMENT...: shows the script's usage and ends if the first argument requests it.
help_if_asked() {
  case ${1-} in
    -h | --help)
      usage
      exit 0
      ;;
  esac
}

# refuse SENTENCE: ends with the script's usage and a message about its arguments.
refuse() {
  usage >&2
  die "$*"
}

# given_path PATH: prints the full path of an argument, which is relative to the caller's folder.
given_path() { case $1 in /*) printf '%s\n' "$1" ;; *) printf '%s\n' "$OLDPWD/$1" ;; esac; }

# own_folder FOLDER: makes FOLDER anew. An existing folder is removed only if it is empty, or if the same script made it
# and, if the script has sealed it, nothing else was added since. Otherwise this ends with a message, and nothing
# changes.
own_folder() {
  require_own_folder "$1"
  rm -rf --one-file-system -- "$1"
  mkdir -p -- "$1"
  printf 'made by scripts/%s\n' "${0##*/}" >"$1/$own_mark"
}
own_mark=.made-by-ringtrain

# require_own_folder FOLDER: ends with a message if own_folder would.
require_own_folder() {
  local stray
  if [ -L "$1" ] || { [ -e "$1" ] && [ ! -d "$1" ]; }; then die "$1 is not a folder: move it away"; fi
  if [ ! -d "$1" ] || [ -z "$(ls -A -- "$1")" ]; then return; fi
  if [ "$(head -n 1 -- "$1/$own_mark" 2>/dev/null)" != "made by scripts/${0##*/}" ]; then
    die "$1 may hold files that scripts/${0##*/} did not make: its $own_mark does not name this script; move $1 away"
  fi
  if [ "$(wc -l <"$1/$own_mark")" -eq 1 ]; then return; fi
  read -r stray < <(LC_ALL=C comm -13 <(tail -n +2 "$1/$own_mark") <(own_files "$1")) || true
  if [ -n "$stray" ]; then die "$1 holds $stray, which scripts/${0##*/} did not make: move it away"; fi
}

# own_files FOLDER: prints the names of its files.
own_files() { (cd -- "$1" && find . ! -type d ! -path "./$own_mark" | LC_ALL=C sort); }

# seal_folder FOLDER: from now on, own_folder removes it only while it has no other files than now.
seal_folder() { own_files "$1" >>"$1/$own_mark"; }

# With RINGTRAIN_PREBUILT=1 the programs exist: nothing is installed, configured, or built. For tests of the scripts.
prebuilt() { [ "${RINGTRAIN_PREBUILT:-}" = 1 ]; }

# configure PRESET [-DNAME=VALUE]...: configures build/PRESET, with ccache if the machine has it.
configure() {
  local preset=$1 ccache
  if prebuilt; then return; fi
  shift
  ccache=$(command -v ccache || true)
  case $preset in
    cuda | bundle) set -- "-DCMAKE_CUDA_COMPILER_LAUNCHER=$ccache" "$@" ;;
  esac
  cmake --preset "$preset" "-DCMAKE_CXX_COMPILER_LAUNCHER=$ccache" "$@"
}

# configure_programs: configures build/release without the tests, unless it has them already.
configure_programs() {
  if [ -e build/release/CMakeCache.txt ]; then configure release; else configure release -DRINGTRAIN_TESTS=OFF; fi
}

# build PRESET [TARGET]...: builds the targets, or all, on every core.
build() {
  local preset=$1
  if prebuilt; then return; fi
  shift
  if [ $# -gt 0 ]; then
    cmake --build --preset "$preset" --parallel "$(nproc)" --target "$@"
  else
    cmake --build --preset "$preset" --parallel "$(nproc)"
  fi
}
