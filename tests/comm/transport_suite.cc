#include "tests/comm/transport_suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "fsdp/comm/local_kernels.h"
#include "fsdp/core/clock.h"
#include "fsdp/core/errors.h"

namespace fsdp::testing {
namespace {

using ::testing::IsEmpty;

float rounded(Dtype d, float v) { return d == Dtype::kFloat32 ? v : bfloat16_to_float(float_to_bfloat16(v)); }

bool exact_sums = false;  // the transport under test sums in an order of its own

class TransportConformance : public ::testing::TestWithParam<std::tuple<World, int>> {
 protected:
  void SetUp() override {
    if (kind().why_not && !kind().why_not(world()).empty()) GTEST_SKIP() << kind().why_not(world());
    exact_sums = kind().any_order;
  }
  const World& kind() const { return std::get<0>(GetParam()); }
  int world() const { return std::get<1>(GetParam()); }
  // What a sum is when it arrives.
  float travelled(Dtype d, float sum) const { return kind().rounds_to_what_travels ? rounded(d, sum) : sum; }
  void on_every_rank(const RankMain& rank_main, Nanos timeout = kLongTimeout) {
    EXPECT_THAT(kind().run(world(), timeout, rank_main), IsEmpty());
  }
};

// Memory of a transport, or plain memory.
class Buffer {
 public:
  Buffer(Transport& t, Count count, Dtype dtype, bool of_transport)
      : transport_(of_transport ? &t : nullptr), dtype_(dtype), count_(count) {
    const Bytes n = std::max<Bytes>(1, count * size_of(dtype));
    p_ = of_transport ? t.allocate(n) : ::operator new(static_cast<std::size_t>(n));
  }
  ~Buffer() {
    if (transport_ != nullptr) {
      transport_->release(p_);
    } else {
      ::operator delete(p_);
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() { return p_; }
  void* at(Count i) { return static_cast<std::byte*>(p_) + i * size_of(dtype_); }
  float get(Count i) const {
    if (dtype_ == Dtype::kFloat32) return static_cast<const float*>(p_)[i];
    return bfloat16_to_float(static_cast<const std::uint16_t*>(p_)[i]);
  }
  void set(Count i, float v) {
    if (dtype_ == Dtype::kFloat32) {
      static_cast<float*>(p_)[i] = v;
    } else {
      static_cast<std::uint16_t*>(p_)[i] = float_to_bfloat16(v);
    }
  }
  template <class F>
  void fill(F value) {
    for (Count i = 0; i < count_; ++i) set(i, value(i));
  }
  template <class F>
  void require_equal(F expected, const std::string& what) const {
    for (Count i = 0; i < count_; ++i) {
      const float want = expected(i);
      if (std::bit_cast<std::uint32_t>(get(i)) == std::bit_cast<std::uint32_t>(want)) continue;
      require(false, what + "[" + std::to_string(i) + "]: " + std::to_string(get(i)) + " = " + std::to_string(want));
    }
  }

 private:
  Transport* transport_;
  Dtype dtype_;
  Count count_;
  void* p_ = nullptr;
};

// Small ones go through a stage, large ones are read in place; odd ones have a tail.
constexpr Count kCounts[] = {1, 77, 1024, 40'003};
constexpr Dtype kDtypes[] = {Dtype::kFloat32, Dtype::kBFloat16};

// Exact in bf16, different for every rank and place.
float exact(int rank, Count i) { return static_cast<float>((rank + 1) * 16 + i % 13); }
// Sums of these depend on the order: large numbers of both signs hide the small ones.
float delicate(int rank, Count i) {
  if (exact_sums) return exact(rank, i);
  constexpr float kParts[] = {1.0e8f, 1.0f, -1.0e8f, 0.375f};
  return kParts[(rank + i) % 4] + static_cast<float>(i % 7);
}
float delicate_sum(int world, Dtype in, Count i) {
  float sum = rounded(in, delicate(0, i));
  for (int r = 1; r < world; ++r) sum += rounded(in, delicate(r, i));
  return sum;
}

CollectiveCall make_call(CollectiveKind kind, Buffer& in, Buffer& out, Count count, Dtype in_dtype, Dtype out_dtype) {
  CollectiveCall call;
  call.kind = kind, call.unit = 3, call.in = in.data(), call.out = out.data(), call.count = count;
  call.in_dtype = in_dtype, call.out_dtype = out_dtype;
  return call;
}

TEST_P(TransportConformance, AllGatherPutsPiecesInRankOrder) {
  on_every_rank([](Transport& t) {
    for (const Count n : kCounts) {
      for (const Dtype d : kDtypes) {
        for (const bool shared : {false, true}) {
          Buffer in(t, n, d, shared), out(t, n * t.world(), d, !shared);
          in.fill([&](Count i) { return exact(t.rank(), i); });
          out.fill([](Count) { return -1.0f; });
          t.run(make_call(CollectiveKind::kAllGather, in, out, n, d, d));
          in.fill([](Count) { return -2.0f; });  // nobody reads it any more
          out.require_equal([&](Count i) { return exact(static_cast<int>(i / n), i % n); }, "gathered");
        }
      }
    }
  });
}

TEST_P(TransportConformance, AllGatherWorksWithTheOwnPieceInPlace) {
  on_every_rank([](Transport& t) {
    for (const Count n : kCounts) {
      Buffer out(t, n * t.world(), Dtype::kFloat32, true);
      out.fill([](Count) { return -1.0f; });
      for (Count i = 0; i < n; ++i) out.set(t.rank() * n + i, exact(t.rank(), i));
      CollectiveCall call = make_call(CollectiveKind::kAllGather, out, out, n, Dtype::kFloat32, Dtype::kFloat32);
      call.in = out.at(t.rank() * n);
      t.run(call);
      out.require_equal([&](Count i) { return exact(static_cast<int>(i / n), i % n); }, "gathered");
    }
  });
}

TEST_P(TransportConformance, ReduceScatterSumsInRankOrderAndScales) {
  on_every_rank([this](Transport& t) {
    for (const Count n : kCounts) {
      for (const Dtype in_dtype : kDtypes) {
        for (const Dtype out_dtype : kDtypes) {
          const bool shared = n % 2 == 0;
          Buffer in(t, n * t.world(), in_dtype, shared), out(t, n, out_dtype, shared);
          in.fill([&](Count i) { return delicate(t.rank(), i); });
          CollectiveCall call = make_call(CollectiveKind::kReduceScatter, in, out, n, in_dtype, out_dtype);
          call.scale = 0.3f;
          t.run(call);
          in.fill([](Count) { return -2.0f; });
          out.require_equal(
              [&](Count i) {
                return rounded(out_dtype,
                               0.3f * travelled(in_dtype, delicate_sum(t.world(), in_dtype, t.rank() * n + i)));
              },
              "part");
        }
      }
    }
  });
}

TEST_P(TransportConformance, ReduceScatterAddsToWhatIsThere) {
  on_every_rank([this](Transport& t) {
    for (const Count n : kCounts) {
      for (const Dtype in_dtype : kDtypes) {
        Buffer in(t, n * t.world(), in_dtype, true), out(t, n, Dtype::kFloat32, false);
        in.fill([&](Count i) { return delicate(t.rank(), i); });
        out.fill([](Count i) { return static_cast<float>(i); });
        CollectiveCall call = make_call(CollectiveKind::kReduceScatter, in, out, n, in_dtype, Dtype::kFloat32);
        call.accumulate = true;
        call.scale = 0.5f;
        t.run(call);
        out.require_equal(
            [&](Count i) {
              return static_cast<float>(i) +
                     0.5f * travelled(in_dtype, delicate_sum(t.world(), in_dtype, t.rank() * n + i));
            },
            "part");
      }
    }
  });
}

TEST_P(TransportConformance, ReduceScatterRoundsOnceWithWhatJoins) {
  on_every_rank([this](Transport& t) {
    for (const Count n : kCounts) {
      for (const Dtype in_dtype : kDtypes) {
        for (const Dtype out_dtype : kDtypes) {
          const bool shared = n % 2 == 0;
          Buffer in(t, n * t.world(), in_dtype, shared), out(t, n, out_dtype, shared);
          in.fill([&](Count i) { return delicate(t.rank(), i); });
          out.fill([](Count) { return -1.0f; });
          std::vector<float> addend(static_cast<std::size_t>(n));
          for (Count i = 0; i < n; ++i) addend[static_cast<std::size_t>(i)] = 0.0625f * static_cast<float>(i % 31);
          CollectiveCall call = make_call(CollectiveKind::kReduceScatter, in, out, n, in_dtype, out_dtype);
          call.scale = 0.5f, call.addend = addend.data();
          t.run(call);
          out.require_equal(
              [&](Count i) {
                const float sum = travelled(in_dtype, delicate_sum(t.world(), in_dtype, t.rank() * n + i));
                return rounded(out_dtype, addend[static_cast<std::size_t>(i)] + 0.5f * sum);
              },
              "part");
        }
      }
    }
  });
}

TEST_P(TransportConformance, AllReduceInPlaceGivesEveryRankTheSumInRankOrder) {
  on_every_rank([this](Transport& t) {
    for (const Count n : kCounts) {
      for (const Dtype d : kDtypes) {
        for (const bool shared : {false, true}) {
          Buffer both(t, n, d, shared);
          both.fill([&](Count i) { return delicate(t.rank(), i); });
          CollectiveCall call = make_call(CollectiveKind::kAllReduce, both, both, n, d, d);
          call.scale = 0.3f;
          t.run(call);
          both.require_equal([&](Count i) { return rounded(d, 0.3f * travelled(d, delicate_sum(t.world(), d, i))); },
                             "sum");
        }
      }
    }
  });
}

TEST_P(TransportConformance, AllReduceCanWriteElsewhereConvertAndAccumulate) {
  on_every_rank([this](Transport& t) {
    for (const Count n : kCounts) {
      for (const bool accumulate : {false, true}) {
        for (const bool shared : {false, true}) {
          Buffer in(t, n, Dtype::kBFloat16, !shared), out(t, n, Dtype::kFloat32, shared);
          in.fill([&](Count i) { return delicate(t.rank(), i); });
          out.fill([](Count i) { return static_cast<float>(i); });
          CollectiveCall call = make_call(CollectiveKind::kAllReduce, in, out, n, Dtype::kBFloat16, Dtype::kFloat32);
          call.accumulate = accumulate;
          t.run(call);
          in.require_equal([&](Count i) { return rounded(Dtype::kBFloat16, delicate(t.rank(), i)); }, "input");
          out.require_equal(
              [&](Count i) {
                return (accumulate ? static_cast<float>(i) : 0.0f) +
                       travelled(Dtype::kBFloat16, delicate_sum(t.world(), Dtype::kBFloat16, i));
              },
              "sum");
        }
      }
    }
  });
}

TEST_P(TransportConformance, BroadcastGivesEveryRankWhatRankZeroHas) {
  on_every_rank([](Transport& t) {
    for (const Count n : kCounts) {
      for (const bool shared : {false, true}) {
        Buffer both(t, n, Dtype::kFloat32, shared);
        both.fill([&](Count i) { return exact(t.rank(), i); });
        t.run(make_call(CollectiveKind::kBroadcast, both, both, n, Dtype::kFloat32, Dtype::kFloat32));
        both.require_equal([&](Count i) { return exact(0, i); }, "broadcast");
      }
    }
  });
}

TEST_P(TransportConformance, EmptyCallsAndBarriersPass) {
  on_every_rank([](Transport& t) {
    Buffer none(t, 0, Dtype::kFloat32, true);
    for (const auto kind : {CollectiveKind::kBarrier, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
                            CollectiveKind::kAllReduce, CollectiveKind::kBroadcast}) {
      t.run(make_call(kind, none, none, 0, Dtype::kFloat32, Dtype::kFloat32));
    }
  });
}

TEST_P(TransportConformance, ExchangeGivesEverybodysValueInRankOrder) {
  on_every_rank([](Transport& t) {
    for (std::uint64_t round = 0; round < 20; ++round) {
      const std::vector<std::uint64_t> got = t.exchange((round << 40) + static_cast<std::uint64_t>(t.rank()));
      require(got.size() == static_cast<std::size_t>(t.world()), "a value per rank");
      for (std::size_t r = 0; r < got.size(); ++r)
        require(got[r] == (round << 40) + r, "value of rank " + std::to_string(r));
    }
  });
}

TEST_P(TransportConformance, ManyCallsWithRanksThatArriveUnevenly) {
  on_every_rank([](Transport& t) {
    std::uint32_t random = 12345u + 77u * static_cast<std::uint32_t>(t.rank());
    volatile std::uint32_t sink = 0;
    for (int k = 0; k < 150; ++k) {
      random = random * 1664525u + 1013904223u;
      for (std::uint32_t i = 0; i < random >> 18; ++i)
        sink = sink + i;  // up to 16,383 additions, another number on each rank
      const Count n = 1 + k * 97 % 9001;
      Buffer in(t, n * t.world(), Dtype::kFloat32, k % 3 == 0), out(t, n * t.world(), Dtype::kFloat32, k % 2 == 0);
      in.fill([&](Count i) { return exact(t.rank(), i) + static_cast<float>(k); });
      CollectiveCall call = make_call(CollectiveKind::kAllGather, in, out, n, Dtype::kFloat32, Dtype::kFloat32);
      if (k % 2 == 0) {
        t.run(call);
        for (Count i = 0; i < n * t.world(); ++i) {
          require(out.get(i) == exact(static_cast<int>(i / n), i % n) + static_cast<float>(k),
                  "gathered, call " + std::to_string(k));
        }
      } else {
        call.kind = CollectiveKind::kReduceScatter;
        t.run(call);
        for (Count i = 0; i < n; ++i) {
          float sum = 0;
          for (int r = 0; r < t.world(); ++r) sum += exact(r, t.rank() * n + i) + static_cast<float>(k);
          require(out.get(i) == sum, "part, call " + std::to_string(k));
        }
      }
    }
  });
}

TEST_P(TransportConformance, RunReturnsTheLastArrival) {
  if (!kind().knows_arrivals) GTEST_SKIP() << "returns its own arrival";
  on_every_rank([](Transport& t) {
    for (int k = 0; k < 10; ++k) {
      CollectiveCall call;
      call.kind = CollectiveKind::kBarrier;
      const Nanos before = steady_now();
      const Nanos last = t.run(call);
      const Nanos after = steady_now();
      require(last <= after, "the last arrival lies before the end");
      const auto all = t.exchange(static_cast<std::uint64_t>(last));
      require(std::all_of(all.begin(), all.end(), [&](std::uint64_t v) { return v == all[0]; }), "ranks agree on it");
      const auto begins = t.exchange(static_cast<std::uint64_t>(before));
      require(last >= static_cast<Nanos>(*std::max_element(begins.begin(), begins.end())),
              "it is not before any begin");
    }
  });
}

TEST_P(TransportConformance, MemoryIsAlignedAndReused) {
  on_every_rank([](Transport& t) {
    for (int k = 0; k < 200; ++k) {  // 400 MiB in all: more than an arena of the suite holds
      void* a = t.allocate(1 << 20);
      void* b = t.allocate((1 << 20) + 4 * k);
      require(reinterpret_cast<std::uintptr_t>(a) % 128 == 0 && reinterpret_cast<std::uintptr_t>(b) % 128 == 0,
              "aligned to 128");
      std::memset(b, k, 64);
      t.release(a);
      t.release(b);
    }
    t.release(nullptr);
  });
}

TEST_P(TransportConformance, DisagreementNamesBothSidesOnEveryRank) {
  if (world() < 2) GTEST_SKIP() << "no peers";
  struct Difference {
    const char *first, *last;
    void (*change)(CollectiveCall&);
  };
  const Difference differences[] = {
      {"all_gather of unit 3 (8 x fp32, call 1)", "all_gather of unit 4 (8 x fp32, call 1)",
       [](CollectiveCall& c) { c.unit = 4; }},
      {"all_gather of unit 3", "reduce_scatter of unit 3",
       [](CollectiveCall& c) { c.kind = CollectiveKind::kReduceScatter; }},
      {"(8 x fp32", "(4 x fp32", [](CollectiveCall& c) { c.count = 4; }},
      {"(8 x fp32", "(8 x bf16", [](CollectiveCall& c) { c.in_dtype = c.out_dtype = Dtype::kBFloat16; }},
  };
  for (const Difference& d : differences) {
    if (&d == &differences[0] && !kind().sees_units) continue;
    on_every_rank(
        [&d](Transport& t) {
          Buffer in(t, 8 * t.world(), Dtype::kFloat32, true), out(t, 8 * t.world(), Dtype::kFloat32, true);
          CollectiveCall call = make_call(CollectiveKind::kAllGather, in, out, 8, Dtype::kFloat32, Dtype::kFloat32);
          const int last = t.world() - 1;
          if (t.rank() == last) d.change(call);
          const std::string text = text_thrown<CommError>([&] { t.run(call); });
          require_contains(text, "rank 0 is in ");
          require_contains(text, d.first);
          require_contains(text, "rank " + std::to_string(last) + " is in ");
          require_contains(text, d.last);
        },
        kind().disagreement_timeout);
  }
}

TEST_P(TransportConformance, AnExchangeThatMeetsACollectiveIsADisagreement) {
  if (world() < 2) GTEST_SKIP() << "no peers";
  on_every_rank(
      [](Transport& t) {
        Buffer in(t, 8, Dtype::kFloat32, true), out(t, 8 * t.world(), Dtype::kFloat32, true);
        const CollectiveCall call = make_call(CollectiveKind::kAllGather, in, out, 8, Dtype::kFloat32, Dtype::kFloat32);
        const std::string text =
            text_thrown<CommError>([&] { t.rank() == 1 ? void(t.exchange(7)) : void(t.run(call)); });
        require_contains(text, "rank 0 is in all_gather of unit 3");
        require_contains(text, "rank 1 is in exchange");
      },
      kind().disagreement_timeout);
}

TEST_P(TransportConformance, AbortEndsThePeersWaitsWithItsReason) {
  if (world() < 2) GTEST_SKIP() << "no peers";
  SharedCounter ended;
  on_every_rank([&ended](Transport& t) {
    t.exchange(0);  // everybody is connected
    if (t.rank() == 1) {
      t.abort("out of memory in unit 5");
      t.abort("a second reason is not heard");
      ended.wait_for(t.world() - 1);
      return;
    }
    CollectiveCall call;
    call.kind = CollectiveKind::kBarrier;
    const std::string text = text_thrown<CommError>([&] { t.run(call); });
    ended.add();
    require_contains(text, "rank 1");
    require_contains(text, "out of memory in unit 5");
    text_thrown<CommError>([&] { t.run(call); });  // and it stays so
  });
}

TEST_P(TransportConformance, AWaitForAMissingRankEndsAtTheDeadline) {
  if (world() < 2) GTEST_SKIP() << "no peers";
  SharedCounter ended;
  constexpr Nanos kTimeout = 5 * kShortTimeout;  // a busy machine gets through the exchange in it
  const bool names_missing = kind().names_missing;
  on_every_rank(
      [&ended, names_missing](Transport& t) {
        const int missing = t.world() - 1;
        struct Ending {  // also by an error: the last rank waits for it
          SharedCounter& ended;
          ~Ending() { ended.add(); }
        } ending{ended};
        t.exchange(0);
        if (t.rank() == missing) return ended.wait_for(missing);
        Buffer in(t, 8, Dtype::kFloat32, true), out(t, 8 * t.world(), Dtype::kFloat32, true);
        const Nanos begin = steady_now();
        const std::string text = text_thrown<TimeoutError>(
            [&] { t.run(make_call(CollectiveKind::kAllGather, in, out, 8, Dtype::kFloat32, Dtype::kFloat32)); });
        require(steady_now() - begin >= kTimeout / 2, "it waited");
        require_contains(text, "all_gather of unit 3");
        if (names_missing) require_contains(text, "rank " + std::to_string(missing) + " has not arrived");
      },
      kTimeout);
}

INSTANTIATE_TEST_SUITE_P(All, TransportConformance,
                         ::testing::Combine(::testing::ValuesIn(worlds_under_test()), ::testing::Values(1, 2, 3, 4)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "World" + std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace fsdp::testing
