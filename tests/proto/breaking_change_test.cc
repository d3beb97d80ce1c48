// moeplan_v1.snapshot.txt lists what peers and files of earlier versions rely on. Adding is fine and needs no refresh,
// though only what the snapshot lists is protected. To refresh it, from the build folder:
//
//   MOEPLAN_REFRESH_SNAPSHOT=1 bin/proto_test --gtest_filter=BreakingChangeTest.NothingOfTheSnapshotIsGone
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/proto/descriptor_rules.h"
#include "tests/proto/sources.h"

namespace moeplan {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kSnapshotFile[] = "tests/proto/moeplan_v1.snapshot.txt";

std::vector<std::string> ReadLines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

void WriteLines(const std::vector<std::string>& lines, const std::string& path) {
  std::ofstream file(path);
  for (const std::string& line : lines) file << line << '\n';
}

TEST(BreakingChangeTest, NothingOfTheSnapshotIsGone) {
  const ParsedProtos protos;
  if (std::getenv("MOEPLAN_REFRESH_SNAPSHOT") != nullptr)
    WriteLines(Snapshot(protos.files()), SourcePath(kSnapshotFile));
  const std::vector<std::string> before = ReadLines(SourcePath(kSnapshotFile));
  ASSERT_GT(before.size(), 300u) << "the snapshot is missing or cut";
  EXPECT_THAT(BreakingChanges(before, protos.files()), IsEmpty())
      << "reserve a removed field's number and name, and add a new field instead of changing one";
}

std::string File(const std::string& body) { return "syntax = \"proto3\";\npackage sample.v1;\n" + body; }

// What `after` breaks of `before`.
std::vector<std::string> Broken(const std::string& before, const std::string& after) {
  const ParsedProtos old_protos({{"sample.proto", File(before)}});
  const ParsedProtos new_protos({{"sample.proto", File(after)}});
  return BreakingChanges(Snapshot(old_protos.files()), new_protos.files());
}

constexpr char kBefore[] = "message A { int32 b = 1; double c_s = 2; enum E { UNSPECIFIED = 0; X = 1; } }";

TEST(BreakingChangeTest, AddingIsFine) {
  EXPECT_THAT(Broken(kBefore,
                     "message A { int32 b = 1; double c_s = 2; enum E { UNSPECIFIED = 0; X = 1; Y = 2; }"
                     " E d = 3; } message N {}"),
              IsEmpty());
}

TEST(BreakingChangeTest, FindsRemovedRenumberedRetypedAndRenamedFields) {
  constexpr char kEnum[] = " enum E { UNSPECIFIED = 0; X = 1; } }";
  const std::string line = "field sample.v1.A.b 1 int32 singular b";
  EXPECT_THAT(Broken(kBefore, std::string("message A { double c_s = 2;") + kEnum), ElementsAre(line));
  EXPECT_THAT(Broken(kBefore, std::string("message A { int32 b = 3; double c_s = 2;") + kEnum), ElementsAre(line));
  EXPECT_THAT(Broken(kBefore, std::string("message A { double b = 1; double c_s = 2;") + kEnum), ElementsAre(line));
  EXPECT_THAT(Broken(kBefore, std::string("message A { int32 z = 1; double c_s = 2;") + kEnum), ElementsAre(line));
  EXPECT_THAT(Broken(kBefore, std::string("message A { repeated int32 b = 1; double c_s = 2;") + kEnum),
              ElementsAre(line));
}

TEST(BreakingChangeTest, WhatIsReservedMayGo) {
  EXPECT_THAT(Broken(kBefore,
                     "message A { reserved 1; reserved \"b\"; double c_s = 2; enum E { UNSPECIFIED = 0;"
                     " reserved 1; reserved \"X\"; } }"),
              IsEmpty());
  // The number alone would let another field take the JSON key.
  EXPECT_THAT(Broken(kBefore, "message A { reserved 1; double c_s = 2; enum E { UNSPECIFIED = 0; X = 1; } }"),
              ElementsAre("field sample.v1.A.b 1 int32 singular b"));
}

TEST(BreakingChangeTest, FindsRemovedEnumValuesAndRpcs) {
  EXPECT_THAT(Broken(kBefore, "message A { int32 b = 1; double c_s = 2; enum E { UNSPECIFIED = 0; } }"),
              ElementsAre("value sample.v1.A.E.X 1"));
  EXPECT_THAT(Broken("message A {} service S { rpc Do(A) returns (A); }", "message A {} service S {}"),
              ElementsAre("rpc sample.v1.S.Do sample.v1.A sample.v1.A"));
}

}  // namespace
}  // namespace moeplan
