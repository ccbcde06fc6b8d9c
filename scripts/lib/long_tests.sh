# shellcheck shell=bash disable=SC2154
# scripts/test --long: sourced by it, after common.sh. Each part ends with 0 (passed), 1 (failed) or 3 (cannot be done here, with a sentence).

long_root() { "$root/scripts/lib/bare_root" "$build/bare-root"; }

long_matrices() {
  "$root/scripts/dependencies" || return 3
  configure cpu
  "$(torch_python)" -W ignore -c 'import torch.distributed.fsdp' ||
    { say "the matrices need the whole PyTorch: scripts/dependencies --full"; return 3; }
  compile virtual_matrix_all && compile parity_all
}

long_fuzz() {
  local cmake reader seconds=${SHARDSCOPE_FUZZ_SECONDS:-600} fuzz=$root/build-fuzz result=0
  command -v clang++ >/dev/null || { say "fuzzing needs clang++: apt-get install clang"; return 3; }
  "$root/scripts/dependencies" || return 3
  cmake=$(find_cmake)
  "$cmake" -S "$root" -B "$fuzz" -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DSHARDSCOPE_TORCH=OFF -DSHARDSCOPE_FUZZ=ON -DSHARDSCOPE_SANITIZE=address >/dev/null &&
    "$cmake" --build "$fuzz" --parallel "$(parallel_jobs)" --target fuzz_kineto fuzz_nsys || return 1
  for reader in kineto nsys; do
    # What is found new is kept beside the build, and is where the next call goes on.
    mkdir -p "$fuzz/corpus-$reader"
    say "fuzz_$reader: $seconds s"
    (cd "$fuzz" && bin/fuzz_"$reader" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=4096 -print_final_stats=1 \
      -artifact_prefix="found-$reader-" "corpus-$reader" "$root/tests/data/traces/$reader") || result=1
  done
  return $result
}

long_tests() {
  local part ended code=0 lines=()
  [ $# -gt 0 ] || set -- root matrices fuzz
  for part in "$@"; do
    case $part in
      root | matrices | fuzz) ;;
      *) fail 2 "unknown part $part; see scripts/test --help" ;;
    esac
  done
  for part in "$@"; do
    say "$part"
    SECONDS=0
    ended=0
    ("long_$part") </dev/null || ended=$?
    case $ended in
      0) lines+=("$part: passed, $((SECONDS / 60)) min") ;;
      3) lines+=("$part: cannot be done here, see above"); [ $code -ne 0 ] || code=3 ;;
      *) lines+=("$part: FAILED, $((SECONDS / 60)) min"); code=1 ;;
    esac
  done
  printf '%s\n' "${lines[@]}"
  return $code
}
