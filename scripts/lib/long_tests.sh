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

# Each with the folders that it starts from, besides what it has found before.
fuzz_targets=(results_db spans spec plan hardware config lines safetensors exported kineto nsys)
fuzz_inputs() {
  case $1 in
    kineto | nsys) echo "$root/tests/data/traces/$1" ;;
    *) echo "$root/tests/data/fuzz/$1" ;;
  esac
}

# fuzz_one TARGET SECONDS: in the build folder, where what is found new is kept, and where the next call goes on.
fuzz_one() {
  local target=$1 log=fuzz_$1.log
  mkdir -p "corpus-$target"
  if bin/fuzz_"$target" -max_total_time="$2" -timeout=60 -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix="found-$target-" \
    "corpus-$target" "$(fuzz_inputs "$target")" >"$log" 2>&1 </dev/null; then
    say "fuzz_$target: $(sed -n 's/^Done \([0-9]*\) runs in \([0-9]*\).*/\1 runs in \2 s, nothing found/p' "$log")"
  else
    say "fuzz_$target: FAILED"
    tail -n 40 "$log" >&2
    return 1
  fi
}

long_fuzz() {
  local cmake target seconds=${SHARDSCOPE_FUZZ_SECONDS:-600} fuzz=$root/build-fuzz result=0 running=()
  command -v clang++ >/dev/null || { say "fuzzing needs clang++: apt-get install clang"; return 3; }
  "$root/scripts/dependencies" || return 3
  cmake=$(find_cmake)
  "$cmake" -S "$root" -B "$fuzz" -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DSHARDSCOPE_TORCH=OFF -DSHARDSCOPE_FUZZ=ON -DSHARDSCOPE_SANITIZE=address >/dev/null &&
    "$cmake" --build "$fuzz" --parallel "$(parallel_jobs)" --target fuzz_programs || return 1
  cd "$fuzz" || return 1
  for target in "${fuzz_targets[@]}"; do
    if [ ${#running[@]} -ge 2 ]; then
      wait "${running[0]}" || result=1
      running=("${running[@]:1}")
    fi
    fuzz_one "$target" "$seconds" &
    running+=($!)
  done
  for target in "${running[@]}"; do wait "$target" || result=1; done
  return $result
}

long_sanitizers() { all_sanitizers; }

long_tests() {
  local part ended code=0 lines=()
  [ $# -gt 0 ] || set -- root matrices fuzz sanitizers
  for part in "$@"; do
    case $part in
      root | matrices | fuzz | sanitizers) ;;
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
