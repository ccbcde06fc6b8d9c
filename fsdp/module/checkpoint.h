// Activation checkpointing: a module's inputs are kept instead of its activations; backward computes it again and goes
// through the fresh graph at once.
//
// Units around the module are not touched: their parameters are read again from the storage that the pre-backward of
// the unit has filled. Units inside are entered a second time, in backward; the scheduler knows that from a first use
// and keeps what they gather until their own backward, which follows.
#pragma once
#include "fsdp/module/module.h"

namespace fsdp {

Tensors checkpoint(Module& module, Tensors inputs);

}  // namespace fsdp
