#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/proto/descriptor_rules.h"
#include "tests/proto/sources.h"

namespace moeplan {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> NamesOf(const std::vector<const google::protobuf::Descriptor*>& messages) {
  std::vector<std::string> names;
  for (const auto* message : messages) names.push_back(message->full_name());
  return names;
}

TEST(ProtoLintTest, OurFilesKeepTheRules) {
  const ParsedProtos protos;
  EXPECT_EQ(protos.files().size(), ProtoFileNames().size());
  for (const auto* file : protos.files()) EXPECT_THAT(LintComplaints(*file), IsEmpty()) << file->name();
}

TEST(ProtoLintTest, EveryMessageIsGenerated) {
  EXPECT_EQ(NamesOf(AllMessages(GeneratedFiles())), NamesOf(AllMessages(ParsedProtos().files())));
}

// What the lint says of one file with `body`.
std::vector<std::string> ComplaintsAbout(const std::string& body, const std::string& package = "sample.v1") {
  const ParsedProtos protos({{"sample.proto", "syntax = \"proto3\";\npackage " + package + ";\n" + body}});
  return LintComplaints(*protos.files().at(0));
}

TEST(ProtoLintTest, AcceptsACommentedMessage) {
  EXPECT_THAT(ComplaintsAbout(R"(
      // A.
      message A {
        // In seconds.
        double time_s = 1;
      })"),
              IsEmpty());
}

TEST(ProtoLintTest, FindsAPackageWithoutVersion) {
  EXPECT_THAT(ComplaintsAbout("", "sample"), ElementsAre("sample.proto: its package does not end in a version"));
}

TEST(ProtoLintTest, FindsTypesThatFilesDoNotHave) {
  EXPECT_THAT(ComplaintsAbout(R"(
      // A.
      message A {
        // B.
        int64 b = 1;
        // C.
        float c = 2;
        // D.
        map<string, uint64> d = 3;
      })"),
              ElementsAre("sample.v1.A.b: its type is int64, expected double, int32, bool or string",
                          "sample.v1.A.c: its type is float, expected double, int32, bool or string",
                          "sample.v1.A.DEntry.value: its type is uint64, expected double, int32, bool or string"));
}

TEST(ProtoLintTest, FindsAnEnumThatIsNotNested) {
  EXPECT_THAT(ComplaintsAbout("enum E { UNSPECIFIED = 0; }"), ElementsAre("sample.v1.E: an enum that is not nested"));
}

TEST(ProtoLintTest, FindsAZeroThatSaysNothing) {
  EXPECT_THAT(ComplaintsAbout(R"(
      // A.
      message A {
        // E.
        enum E {
          // Z.
          Z = 0;
        }
      })"),
              ElementsAre("sample.v1.A.Z: value 0 is neither UNSPECIFIED, OTHER nor said to be the default"));
}

TEST(ProtoLintTest, FindsNamesThatAreNotSnakeCase) {
  EXPECT_THAT(ComplaintsAbout(R"(
      // A.
      message A {
        // B.
        int32 bigCount = 1;
      })"),
              ElementsAre("sample.v1.A.bigCount: its name is not snake_case"));
}

TEST(ProtoLintTest, FindsWhatHasNoComment) {
  EXPECT_THAT(ComplaintsAbout(R"(
      message DoRequest { int32 b = 1; enum E { UNSPECIFIED = 0; } }
      message DoResponse {}
      service S { rpc Do(DoRequest) returns (DoResponse); })"),
              ElementsAre("sample.v1.DoRequest: no comment", "sample.v1.DoRequest.E: no comment",
                          "sample.v1.DoRequest.UNSPECIFIED: no comment", "sample.v1.DoRequest.b: no comment",
                          "sample.v1.DoResponse: no comment", "sample.v1.S: no comment", "sample.v1.S.Do: no comment"));
}

TEST(ProtoLintTest, FindsSharedRequestsAndResponses) {
  EXPECT_THAT(
      ComplaintsAbout(R"(
      // D.
      message D {}
      // S.
      service S {
        // Do.
        rpc Do(D) returns (D);
      })"),
      ElementsAre("sample.v1.S.Do: its request is not DoRequest", "sample.v1.S.Do: its response is not DoResponse"));
}

TEST(ProtoLintTest, FindsADefaultThatZeroWouldHide) {
  EXPECT_THAT(ComplaintsAbout(R"(
      // A.
      message A {
        // Default 8.
        int32 b = 1;
        // Default 8.
        optional int32 c = 2;
        // Default 0.
        int32 d = 3;
      })"),
              ElementsAre("sample.v1.A.b: its default is 8 but it is not optional"));
}

TEST(ProtoLintTest, FindsAUnitThatTheNameDoesNotSay) {
  EXPECT_THAT(ComplaintsAbout(R"(
      // A.
      message A {
        // In bytes/s.
        double rate_bytes = 1;
      })"),
              ElementsAre("sample.v1.A.rate_bytes: its comment says \"in bytes/s\" but its name does not end in "
                          "bytes_per_s"));
}

TEST(ProtoLintTest, FindsFieldsOutOfOrder) {
  EXPECT_THAT(ComplaintsAbout(R"(
      // A.
      message A {
        // B.
        int32 b = 2;
        // C.
        int32 c = 1;
      })"),
              ElementsAre("sample.v1.A.c: its number is lower than that of the field before"));
}

}  // namespace
}  // namespace moeplan
