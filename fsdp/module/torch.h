// The room's LibTorch headers, precompiled once. Only .cc files of torch rooms include it.
#pragma once
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

// at::RecordFunction has a member that exists only without it, and LibTorch is built with it.
#ifndef NDEBUG
#error "LibTorch's headers need NDEBUG: link LibTorch::headers"
#endif
