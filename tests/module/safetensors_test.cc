#include "fsdp/module/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "fsdp/core/errors.h"
#include "tests/testing/test_data.h"

namespace fsdp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Safetensors : public testing::Test {
 protected:
  Safetensors() { std::filesystem::create_directories(folder_); }
  ~Safetensors() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return (folder_ / "a.safetensors").string(); }
  // A file with this header, and `bytes` of arrays behind it.
  void write(const std::string& header, std::size_t bytes, std::int64_t claimed = -1) const {
    const std::int64_t length = claimed >= 0 ? claimed : static_cast<std::int64_t>(header.size());
    std::ofstream out(path(), std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << header << std::string(bytes, '\0');
  }
  static std::string refusal(const std::string& file) {
    try {
      const SafetensorsReader reader(file);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "accepted";
  }
  std::string refusal_of(const std::string& offsets, std::size_t bytes) const {
    write(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + offsets + "}}", bytes);
    return refusal(path());
  }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("shardscope-safetensors-" + std::to_string(getpid()));
};

TEST_F(Safetensors, ArraysAndNotesComeBack) {
  const std::vector<float> a{1, 2, 3}, b{-0.5f};
  write_safetensors(path(), {{"a", a.data(), 3}, {"b", b.data(), 1}}, {{"step", "7"}});
  const SafetensorsReader reader(path());
  EXPECT_THAT(reader.names(), ElementsAre("a", "b"));
  EXPECT_EQ(reader.metadata().at("step"), "7");
  EXPECT_EQ(reader.count("a"), 3);
  std::vector<float> read(2);
  reader.read("a", 1, 2, read.data());
  EXPECT_THAT(read, ElementsAre(2, 3));
}

// The attack: the end of the array, counted from the begin of the file, does not fit into 64 bits.
TEST_F(Safetensors, OffsetsThatOverflowAreRefused) {
  EXPECT_THAT(refusal(testing_support::test_data() + "/fuzz/safetensors/offsets_overflow.safetensors"),
              HasSubstr("is cut short: a/value is missing"));
}

TEST_F(Safetensors, OffsetsOutsideOfTheFileAreRefused) {
  EXPECT_EQ(refusal_of("[0,4]", 4), "accepted");
  EXPECT_EQ(refusal_of("[4,4]", 4), "accepted");
  for (const char* offsets : {"[0,8]", "[4,8]", "[-4,0]", "[4,0]", "[9223372036854775800,9223372036854775804]",
                              "[-9223372036854775808,4]", "[0,18446744073709551612]", "[0,1e300]", "[0]", "[0,4,8]"})
    EXPECT_NE(refusal_of(offsets, 4), "accepted") << offsets;
  EXPECT_THAT(refusal_of("[0,3]", 4), HasSubstr("a part of a number"));
}

TEST_F(Safetensors, AHeaderThatIsLongerThanTheFileIsRefused) {
  for (const std::int64_t claimed : {std::int64_t{3}, std::int64_t{1} << 20, std::int64_t{1} << 62}) {
    write("{}", 0, claimed);
    EXPECT_NE(refusal(path()), "accepted") << claimed;
  }
}

}  // namespace
}  // namespace fsdp
