#include "planner/service/calls/answer_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "models/text.h"
#include "tests/test_seed.h"

namespace moeplan::service {
namespace {

class Nobody final : public Origin {
 public:
  std::string address() const override { return "test"; }
  std::string token() const override { return ""; }
  std::string request_id() const override { return "id"; }
};

const Nobody kNobody;
const Call::Observer kUnobserved = [](const Call&, const Answer&) {};

struct Asked {
  std::shared_ptr<Call> call;
  std::shared_ptr<std::vector<Answer>> answers = std::make_shared<std::vector<Answer>>();
};

Asked Ask(const std::string& question) {
  Asked asked;
  asked.call = std::make_shared<Call>(
      Methods().front(), "grpc", question, kNobody,
      [answers = asked.answers](const Answer& answer) { answers->push_back(answer); }, kUnobserved);
  return asked;
}

Answer Said(const std::string& text) { return {.message = std::make_shared<const std::string>(text)}; }

std::string TextOf(const Asked& asked) {
  if (asked.answers->size() != 1) return StrCat(asked.answers->size(), " answers");
  const Answer& answer = asked.answers->front();
  return answer.message ? *answer.message : StrCat("error ", static_cast<int>(answer.status.error_code()));
}

TEST(AnswerCacheTest, TheFirstSearchesTheOthersWaitAndLaterOnesAreAnsweredFromMemory) {
  AnswerCache cache(1000);
  const Asked first = Ask("q"), second = Ask("q"), other = Ask("r");
  const auto search = cache.Wait("q", first.call);
  ASSERT_NE(search, nullptr);
  EXPECT_EQ(cache.Wait("q", second.call), nullptr);
  EXPECT_NE(cache.Wait("r", other.call), nullptr);
  EXPECT_EQ(cache.Find("q"), nullptr);
  cache.Settle(*search, Said("a"), /*keep=*/true);
  EXPECT_EQ(TextOf(first), "a");
  EXPECT_EQ(TextOf(second), "a");
  EXPECT_TRUE(other.answers->empty());
  ASSERT_NE(cache.Find("q"), nullptr);
  EXPECT_EQ(*cache.Find("q"), "a");
}

TEST(AnswerCacheTest, WhatMayNotBeKeptAndErrorsAreNot) {
  AnswerCache cache(1000);
  const Asked first = Ask("q");
  cache.Settle(*cache.Wait("q", first.call), Said("a"), /*keep=*/false);
  EXPECT_EQ(cache.Find("q"), nullptr);
  const Asked second = Ask("q");
  cache.Settle(*cache.Wait("q", second.call), {.status = grpc::Status(grpc::NOT_FOUND, "")}, /*keep=*/true);
  EXPECT_EQ(cache.Find("q"), nullptr);
  EXPECT_EQ(TextOf(second), StrCat("error ", static_cast<int>(grpc::NOT_FOUND)));
}

TEST(AnswerCacheTest, ClearMakesKeptAnswersAndSearchesThatBeganBeforeVoid) {
  AnswerCache cache(1000);
  const Asked kept = Ask("kept"), early = Ask("q"), late = Ask("q");
  cache.Settle(*cache.Wait("kept", kept.call), Said("old"), /*keep=*/true);
  const auto before = cache.Wait("q", early.call);
  cache.Clear();
  EXPECT_EQ(cache.Find("kept"), nullptr);
  const auto after = cache.Wait("q", late.call);
  ASSERT_NE(after, nullptr) << "an answer from before would be stale";
  cache.Settle(*after, Said("new"), /*keep=*/true);
  cache.Settle(*before, Said("old"), /*keep=*/true);
  EXPECT_EQ(TextOf(early), "old");
  EXPECT_EQ(TextOf(late), "new");
  EXPECT_EQ(*cache.Find("q"), "new");
}

TEST(AnswerCacheTest, ASearchEndsWhenAllWhoWaitedHaveLeft) {
  AnswerCache cache(1000);
  const Asked first = Ask("q"), second = Ask("q"), third = Ask("q");
  const auto search = cache.Wait("q", first.call);
  EXPECT_EQ(cache.Wait("q", second.call), nullptr);
  first.call->Cancel();
  EXPECT_EQ(TextOf(first), StrCat("error ", static_cast<int>(grpc::CANCELLED)));
  EXPECT_FALSE(AnswerCache::cancelled(*search).stop_requested()) << "somebody still waits";
  second.call->Cancel();
  EXPECT_TRUE(AnswerCache::cancelled(*search).stop_requested());
  const auto next = cache.Wait("q", third.call);
  ASSERT_NE(next, nullptr) << "the search that ends would answer that it was cancelled";
  cache.Settle(*search, {.status = grpc::Status(grpc::CANCELLED, "")}, /*keep=*/false);
  EXPECT_TRUE(third.answers->empty());
  cache.Settle(*next, Said("a"), /*keep=*/true);
  EXPECT_EQ(TextOf(third), "a");
}

TEST(AnswerCacheTest, WhoHadLeftBeforeIsAnsweredAtOnce) {
  AnswerCache cache(1000);
  const Asked gone = Ask("q");
  gone.call->Cancel();
  const auto search = cache.Wait("q", gone.call);
  ASSERT_NE(search, nullptr);
  EXPECT_TRUE(AnswerCache::cancelled(*search).stop_requested());
  EXPECT_EQ(TextOf(gone), StrCat("error ", static_cast<int>(grpc::CANCELLED)));
  cache.Settle(*search, Said("late"), /*keep=*/false);
  EXPECT_EQ(gone.answers->size(), 1u);
}

TEST(AnswerCacheTest, TheLastUsedAreKeptWithinTheLimit) {
  AnswerCache cache(/*limit_bytes=*/30);
  const auto keep = [&](const std::string& question) {
    const Asked asked = Ask(question);
    cache.Settle(*cache.Wait(question, asked.call), Said("123456789"), /*keep=*/true);
  };
  for (const char* question : {"a", "b", "c"}) keep(question);
  EXPECT_EQ(cache.statistics().bytes, 30u);
  EXPECT_NE(cache.Find("a"), nullptr);  // Now b was used longest ago.
  keep("d");
  EXPECT_EQ(cache.Find("b"), nullptr);
  for (const char* question : {"a", "c", "d"}) EXPECT_NE(cache.Find(question), nullptr) << question;
  EXPECT_EQ(cache.statistics().bytes, 30u);
  const Asked large = Ask("e");
  cache.Settle(*cache.Wait("e", large.call), Said(std::string(100, 'x')), /*keep=*/true);
  EXPECT_EQ(cache.Find("e"), nullptr) << "larger than all the room";
  EXPECT_EQ(cache.statistics().bytes, 0u);
}

// Every call is answered exactly once, whoever leaves, asks or stores a profile meanwhile.
TEST(AnswerCacheTest, ManyThreadsAnswerEveryCallOnce) {
  const uint64_t seed = TestSeed();
  AnswerCache cache(200);
  std::atomic<int> answered = 0;
  constexpr int kThreads = 4, kCalls = 2000;
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(seed + t);
      for (int i = 0; i < kCalls; ++i) {
        const std::string question = StrCat(random() % 5);
        const auto call = std::make_shared<Call>(
            Methods().front(), "grpc", question, kNobody, [&](const Answer&) { ++answered; }, kUnobserved);
        if (const Bytes kept = cache.Find(question)) {
          EXPECT_EQ(*kept, question);
          call->Finish({.message = kept});
          continue;
        }
        const auto search = cache.Wait(question, call);
        if (random() % 3 == 0) call->Cancel();
        if (random() % 50 == 0) cache.Clear();
        if (search) cache.Settle(*search, Said(question), random() % 2 == 0);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(answered, kThreads * kCalls);
}

}  // namespace
}  // namespace moeplan::service
