#pragma once
#include <string>

namespace testing_support {

/// The folder tests/data of the checkout. A function, so that only one file of the build knows where the checkout lies
/// and a compiler cache serves every other file to another checkout.
std::string test_data();

}  // namespace testing_support
