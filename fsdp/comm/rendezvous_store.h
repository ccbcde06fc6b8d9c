// What is behind a Rendezvous, for the one file that hands it to c10d.
#pragma once
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "fsdp/comm/rendezvous.h"

namespace fsdp {

struct Rendezvous::Impl {
  Options options;
  c10::intrusive_ptr<c10d::TCPStore> store;
};

}  // namespace fsdp
