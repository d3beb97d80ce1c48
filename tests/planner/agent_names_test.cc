#include "planner/service/fleet/agent_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "planner/service/access/caller.h"
#include "service_fixture.h"
#include "told.h"

namespace moeplan::service {
namespace {

class AgentNamesTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    Restart();
  }
  // As after a restart of the planner.
  void Restart() {
    names_.reset();
    store_ = std::make_unique<Store>(*Store::Open(db()));
    names_ =
        std::make_unique<AgentNames>(*store_, [this](const std::string& token) { return tokens_.contains(token); });
    ASSERT_TRUE(names_->Load().ok());
  }

  std::set<std::string> tokens_ = {"west", "thief"};
  std::unique_ptr<Store> store_;
  std::unique_ptr<AgentNames> names_;
};

TEST_F(AgentNamesTest, TheFirstCallerHasANameAlsoAfterARestart) {
  EXPECT_TRUE(names_->Claim("a", "token west").ok());
  for (int starts = 0; starts < 2; ++starts) {
    EXPECT_TRUE(names_->Claim("a", "token west").ok());
    EXPECT_THAT(names_->Claim("a", "token thief"), IsError(StatusCode::kPermissionDenied, "name: found a, which"));
    EXPECT_THAT(names_->Claim("a", "certificate CN=a"), IsError(StatusCode::kPermissionDenied, "name: found a, which"));
    EXPECT_TRUE(names_->Has("a", "token west"));
    EXPECT_FALSE(names_->Has("a", "token thief"));
    EXPECT_FALSE(names_->Has("b", "token west"));
    Restart();
  }
}

TEST_F(AgentNamesTest, ARevokedTokenGivesItsNamesBackUnlessAnotherOfItsNameFollows) {
  EXPECT_TRUE(names_->Claim("a", "token west").ok());
  tokens_.erase("west");
  tokens_.insert("west");  // Replaced under its name.
  EXPECT_FALSE(names_->Claim("a", "token thief").ok());
  tokens_.erase("west");
  EXPECT_TRUE(names_->Claim("a", "token east").ok());
  EXPECT_FALSE(names_->Has("a", "token west"));
  Restart();
  EXPECT_TRUE(names_->Has("a", "token east"));
}

TEST_F(AgentNamesTest, ACertificateKeepsItsNames) {
  EXPECT_TRUE(names_->Claim("a", "certificate CN=a").ok());
  EXPECT_TRUE(names_->Claim("b", "token west, certificate CN=b").ok());
  EXPECT_FALSE(names_->Claim("a", "token west").ok());
  EXPECT_FALSE(names_->Claim("b", "token west").ok());
  EXPECT_FALSE(names_->Claim("b", "token west, certificate CN=a").ok());
}

TEST_F(AgentNamesTest, NobodyTakesAllNames) {
  names_ = std::make_unique<AgentNames>(
      *store_, [](const std::string&) { return true; }, /*most_names=*/2);
  ASSERT_TRUE(names_->Load().ok());
  EXPECT_TRUE(names_->Claim("a", "token west").ok());
  EXPECT_TRUE(names_->Claim("b", "token west").ok());
  EXPECT_THAT(names_->Claim("c", "token west"), IsError(StatusCode::kPermissionDenied, "name: found c after 2 others"));
  EXPECT_TRUE(names_->Claim("b", "token west").ok());
  EXPECT_TRUE(names_->Claim("c", "token thief").ok());
}

TEST_F(AgentNamesTest, WithoutTokensAndCertificatesEverybodyIsTheSame) {
  EXPECT_TRUE(names_->Claim("a", "").ok());
  EXPECT_TRUE(names_->Claim("a", "token west").ok());  // The planner asks for tokens from now on.
  EXPECT_TRUE(names_->Claim("a", "").ok());            // And no more.
  EXPECT_TRUE(names_->Has("a", "token west"));
}

TEST(CallerTest, TheNameOfTheTokenIsFoundInTheText) {
  EXPECT_EQ(TokenNameOf(CallerText("west", "")), "west");
  EXPECT_EQ(TokenNameOf(CallerText("west", "CN=a")), "west");
  EXPECT_EQ(TokenNameOf(CallerText("", "CN=a")), std::nullopt);
  EXPECT_EQ(CallerText("", ""), "");
  EXPECT_EQ(SubjectOf(nullptr), "");
  EXPECT_EQ(SubjectOfPem("no certificate"), "");
}

}  // namespace
}  // namespace moeplan::service
