# shellcheck shell=bash
# What dependencies, quickstart, test and check share. Sourced after `set -euo pipefail`; defines functions and these values:
#   root        the checkout
#   cache       where things live that outlast a checkout (SHARDSCOPE_CACHE, or the user's cache folder)
#   torch_env   the virtual environment that holds LibTorch

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${SHARDSCOPE_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/shardscope}
torch_version=2.11.0
torch_env=$cache/torch-$torch_version
cmake_minimum=3.25
build=$root/build
unfinished=.unfinished   # lies in a virtual environment of ours that is not whole yet

say() { printf '[%s] %s\n' "$(basename "$0")" "$*" >&2; }
# fail CODE TEXT: 2 bad usage, 3 this machine cannot do it.
fail() {
  local code=$1
  shift
  say "$*"
  exit "$code"
}

# The comment block below the first line of a script is its --help.
usage() { sed -n '2,/^[^#]/{/^#/!q;s/^# \{0,1\}//;p}' "$0"; }

# at_least HAVE WANT: is dotted version HAVE >= WANT?
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# A CMake that is new enough: the machine's, else the one in torch_env. Prints its path; fails when there is none.
find_cmake() {
  local candidate version
  for candidate in "$(command -v cmake || true)" "$torch_env/bin/cmake" "$cache/tools/bin/cmake"; do
    [ -x "$candidate" ] && [ ! -e "${candidate%/bin/cmake}/$unfinished" ] || continue
    version=$("$candidate" --version | sed -n '1s/[^0-9]*//p')
    if at_least "$version" "$cmake_minimum"; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  return 1
}

# The C++ compiler: CXX when set, else a g++ of at least 12 (its standard library is the oldest that the code is built with).
find_compiler() {
  local candidate
  if [ -n "${CXX:-}" ]; then
    printf '%s\n' "$CXX"
    return 0
  fi
  for candidate in g++ g++-14 g++-13 g++-12; do
    command -v "$candidate" >/dev/null || continue
    if [ "$("$candidate" -dumpversion | cut -d. -f1)" -ge 12 ]; then
      command -v "$candidate"
      return 0
    fi
  done
  return 1
}

# The Python whose torch package is built against.
torch_python() { printf '%s\n' "${SHARDSCOPE_PYTHON:-$torch_env/bin/python}"; }

# Compilations at a time: one a core, but 2 GiB of memory each (a file with LibTorch's headers takes 1.3).
parallel_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ {print int($2 / 2097152)}' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  if [ "$memory" -lt "$cores" ]; then echo "$memory"; else echo "$cores"; fi
}

# configure PRESET [CMake arguments]: into build/, always (a second or two: a new room or another LibTorch is never missed).
# Quiet unless it fails. SHARDSCOPE_WERROR=ON in the environment: warnings are errors, with every preset.
configure() {
  local preset=$1 cmake compiler log=$build/configure.log chosen
  shift
  cmake=$(find_cmake) || fail 3 "no CMake >= $cmake_minimum; run scripts/dependencies"
  compiler=$(find_compiler) || fail 3 "no g++ >= 12; run scripts/dependencies, or set CXX to a C++20 compiler"
  mkdir -p "$build"
  chosen="$(torch_python) $compiler"
  # FindLibTorch and CMake both keep what they found first: another Python or compiler needs a new cache.
  if [ -f "$build/CMakeCache.txt" ] && [ "$(cat "$build/.toolchain" 2>/dev/null)" != "$chosen" ]; then
    rm -f "$build/CMakeCache.txt"
  fi
  printf '%s\n' "$chosen" >"$build/.toolchain"
  if ! (cd "$root" && "$cmake" --preset "$preset" -DPython3_EXECUTABLE="$(torch_python)" -DCMAKE_CXX_COMPILER="$compiler" \
    ${SHARDSCOPE_WERROR:+"-DSHARDSCOPE_WERROR=$SHARDSCOPE_WERROR"} "$@") >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    fail 3 "CMake could not configure; the whole output is in ${log#"$root"/}"
  fi
}

# compile [TARGET...]: everything without a target. Ninja's own progress is the output.
compile() {
  local cmake
  cmake=$(find_cmake)
  if [ $# -gt 0 ]; then
    "$cmake" --build "$build" --parallel "$(parallel_jobs)" --target "$@" >&2
  else
    "$cmake" --build "$build" --parallel "$(parallel_jobs)" >&2
  fi
}
