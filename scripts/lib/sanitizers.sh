# shellcheck shell=bash disable=SC2154
# scripts/test --sanitizers: sourced by it, after common.sh. What does not need LibTorch, whose wheel is not instrumented, each kind of
# sanitizer in a build folder of its own, build/asan and build/tsan.

# Readers of what comes from outside, what shares memory between threads, and what both stand on.
asan_programs=(core_test plan_test schedule_test device_conformance_test comm_transport_test comm_test analysis_test cost_test sweep_test
  store_test workload_models_test trace_test trial_test safetensors_test fuzz_corpus_test)
tsan_programs=(schedule_test device_host_test device_conformance_test comm_transport_test comm_test trial_test)

# run_program PRESET PROGRAM: quiet unless it fails.
run_program() {
  local preset=$1 program=$2 log=$root/build/$1/$2.log
  # The shadow memory of a thread sanitizer wants addresses that newer kernels do not always give.
  local ways=()
  [ "$preset" != tsan ] || ! setarch -R true 2>/dev/null || ways=(setarch -R)
  if ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 \
    "${ways[@]}" "$root/build/$preset/bin/$program" --gtest_brief=1 >"$log" 2>&1 </dev/null; then
    say "$preset $program: $(sed -n 's/^\[==========\] \(.*\) ran.*/\1/p' "$log" | tail -n 1)"
  else
    say "$preset $program: FAILED"
    grep -aE '^\[  FAILED|^SUMMARY|runtime error|ERROR: |WARNING: Thread' "$log" | head -n 20 >&2
    tail -n 40 "$log" >&2
    return 1
  fi
}

# sanitized PRESET PROGRAM...: builds and runs them, two at a time.
sanitized() {
  local preset=$1 build=$root/build/$1 program result=0 running=()
  shift
  configure "$preset"
  compile "$@" || return 1
  for program in "$@"; do
    if [ ${#running[@]} -ge 2 ]; then
      wait "${running[0]}" || result=1
      running=("${running[@]:1}")
    fi
    run_program "$preset" "$program" &
    running+=($!)
  done
  for program in "${running[@]}"; do wait "$program" || result=1; done
  return $result
}

sanitizers() {
  local result=0
  "$root/scripts/dependencies" || return 3
  sanitized asan "${asan_programs[@]}" || result=1
  sanitized tsan "${tsan_programs[@]}" || result=1
  if [ $result -eq 0 ]; then say "sanitizers: nothing found"; else say "sanitizers: FAILED, see above; logs are in build/asan and build/tsan"; fi
  return $result
}

# Every test of the torch-free part, as ctest runs it.
all_sanitizers() {
  local preset result=0 ctest
  "$root/scripts/dependencies" || return 3
  ctest=$(dirname "$(find_cmake)")/ctest
  for preset in asan tsan; do
    local build=$root/build/$preset
    configure "$preset"
    compile || { result=1; continue; }
    "$ctest" --test-dir "$build" --output-on-failure --no-tests=error -j 2 || result=1
  done
  return $result
}
