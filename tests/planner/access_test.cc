#include "planner/service/access/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "models/time_text.h"
#include "planner/service/access/token.h"
#include "proto/grpc_status.h"

namespace moeplan::service {
namespace {

std::string ReasonOf(const std::optional<grpc::Status>& refused) { return refused ? DetailOf(*refused).reason : "may"; }

TokenRecord Record(const std::string& name, const std::string& role, const std::string& token) {
  return {.name = name, .role = role, .sha256 = HexDigestOf(token)};
}

TEST(TokenTest, TokensAreLongPlainAndNeverTheSame) {
  std::set<std::string> tokens;
  for (int i = 0; i < 100; ++i) {
    const StatusOr<std::string> token = NewToken();
    ASSERT_TRUE(token.ok());
    EXPECT_EQ(token->size(), 4u + 43u) << *token;
    EXPECT_EQ(token->find_first_not_of("mpt_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
              std::string::npos);
    tokens.insert(*token);
  }
  EXPECT_EQ(tokens.size(), 100u);
  // SHA-256 of "abc" (FIPS 180-2).
  EXPECT_EQ(HexDigestOf("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(AccessTest, WithoutATokenEverybodyMayDoEverything) {
  Access access;
  EXPECT_FALSE(access.asks_for_tokens());
  EXPECT_EQ(ReasonOf(access.Refuse("", Role::kAdmin)), "may");
}

TEST(AccessTest, EachRoleMayWhatTheOnesBeforeItMay) {
  Access access;
  const Role roles[] = {Role::kRead, Role::kPlan, Role::kReport, Role::kAdmin};
  std::vector<TokenRecord> records;
  for (const Role role : roles)
    records.push_back(Record(std::string(Name(role)), std::string(Name(role)), std::string(Name(role))));
  access.Set(records);
  for (const Role has : roles) {
    for (const Role needs : roles) {
      EXPECT_EQ(ReasonOf(access.Refuse(Name(has), needs)), needs <= has ? "may" : "ROLE_TOO_LOW")
          << Name(has) << " for " << Name(needs);
    }
  }
  EXPECT_EQ(access.Refuse("read", Role::kAdmin)->error_code(), grpc::PERMISSION_DENIED);
  EXPECT_THAT(access.Refuse("read", Role::kAdmin)->error_message(), testing::HasSubstr("needs the role admin"));
}

TEST(AccessTest, NoTokenAWrongOneAndARevokedOneAreRefused) {
  Access access;
  TokenRecord revoked = Record("old", "admin", "secret");
  revoked.revoked_at = "2026-01-01T00:00:00Z";
  access.Set({revoked});
  EXPECT_TRUE(access.asks_for_tokens()) << "revoking the last one does not open the door";
  EXPECT_EQ(ReasonOf(access.Refuse("", Role::kRead)), "NO_TOKEN");
  EXPECT_EQ(ReasonOf(access.Refuse("secret", Role::kRead)), "UNKNOWN_TOKEN");
  EXPECT_EQ(access.Refuse("", Role::kRead)->error_code(), grpc::UNAUTHENTICATED);
}

TEST(AccessTest, ATokenEndsAtItsTime) {
  const auto noon = std::chrono::sys_days(std::chrono::year(2026) / 6 / 1) + std::chrono::hours(12);
  auto now = Access::Clock::time_point(noon);
  Access access([&] { return now; });
  TokenRecord record = Record("short", "plan", "secret");
  record.expires_at = Rfc3339(noon);
  access.Set({record});
  now -= std::chrono::seconds(1);
  EXPECT_EQ(ReasonOf(access.Refuse("secret", Role::kPlan)), "may");
  now += std::chrono::seconds(1);
  EXPECT_EQ(ReasonOf(access.Refuse("secret", Role::kPlan)), "TOKEN_EXPIRED");
}

TEST(AccessTest, ARoleOfANewerMoeplanReachesNothing) {
  Access access;
  access.Set({Record("new", "owner", "secret")});
  EXPECT_EQ(ReasonOf(access.Refuse("secret", Role::kRead)), "ROLE_TOO_LOW");
}

TEST(AccessTest, BearerAloneIsATokensScheme) {
  EXPECT_EQ(BearerToken("Bearer abc"), "abc");
  for (const char* other : {"", "abc", "Basic abc", "Bearer", "bearer abc"}) EXPECT_EQ(BearerToken(other), "") << other;
}

}  // namespace
}  // namespace moeplan::service
