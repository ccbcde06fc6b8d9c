// Controls of the fake libcupti (fake_cupti.cc), which a test loads as CuptiLibrary does and then asks by
// dlsym("fake_cupti").
#pragma once
#include <cstddef>
#include <cstdint>

struct FakeCupti {
  void (*reset)();
  // The n-th call of a cupti function from now on, counted from 1, gives `result` and does nothing; 0: none.
  void (*fail_at)(int n, int result);
  int (*calls)();                   // since reset or fail_at
  const char* (*call_name)(int n);  // of the n-th call
  void (*set_version)(std::uint32_t);
  void (*hold_by_other)(bool);  // another tool is subscribed
  void (*drop_records)(std::size_t);
  // A kernel launched by the calling thread: the records that CUPTI would write if the kinds are enabled. 0 times: as
  // when the device's buffer is full. False: CUPTI had no buffer.
  bool (*launch)(const char* name, std::uint64_t begin, std::uint64_t end);
  int (*subscribers)();
  int (*enabled_kinds)();
  int (*buffers)();                // that CUPTI holds
  int (*pushed)();                 // depth of the calling thread's external ids
  std::int64_t (*clock_offset)();  // its clock minus CLOCK_MONOTONIC
};
