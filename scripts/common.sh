# shellcheck shell=bash
# What the scripts share; sourced, not run. The working directory becomes the repository's root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\n==> %s\n' "$*"; }

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# With RINGTRAIN_PREBUILT=1 the programs are there: nothing is installed, configured or built. For tests of the scripts.
prebuilt() { [ "${RINGTRAIN_PREBUILT:-}" = 1 ]; }

# configure PRESET [-DNAME=VALUE]...: configures build/PRESET, with ccache where the machine has it.
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
