#include "tests/testing/test_data.h"

namespace testing_support {

std::string test_data() { return SHARDSCOPE_TEST_DATA; }

}  // namespace testing_support
