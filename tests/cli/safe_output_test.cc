#include "harness/cli/safe_output.h"

#include <gtest/gtest.h>

#include <sstream>

namespace harness::cli {
namespace {

TEST(SafeOutput, WhatActsIsWrittenAsItsNumberWhileItStandsBeforeTheStream) {
  std::ostringstream out;
  {
    const SafeOutput safe(out);
    out << "a\x1b[31m" << '\r' << "\xe2\x80\xae"
        << "b\n\tc" << std::endl;
    EXPECT_EQ(out.str(), "a\\u001b[31m\\u000d\\u202eb\n\tc\n");
  }
  out << "\x1b";
  EXPECT_EQ(out.str().back(), '\x1b');
}

TEST(SafeOutput, ACodePointMayComeInPiecesAndOneThatNeverEndsIsTold) {
  std::ostringstream out;
  const SafeOutput safe(out);
  out << '\xc3' << '\xa9' << '\xc2' << '\x9b' << std::flush;
  EXPECT_EQ(out.str(), "\xc3\xa9\\u009b");
  out << "\xe2\x80" << std::flush;
  EXPECT_EQ(out.str(), "\xc3\xa9\\u009b\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(SafeOutput, TheProgramsOwnControlsPassInTheirPlace) {
  std::ostringstream out;
  const SafeOutput safe(out);
  out << "a";
  write_control(out, "\r\033[K");
  out << "b" << std::flush;
  EXPECT_EQ(out.str(), "a\r\033[Kb");
}

TEST(SafeOutput, AStreamThatCannotWriteIsStillSeenToFail) {
  struct Full : std::streambuf {
  } full;
  std::ostream broken(&full);
  const SafeOutput safe(broken);
  broken << "text" << std::flush;
  EXPECT_TRUE(broken.fail());
}

}  // namespace
}  // namespace harness::cli
