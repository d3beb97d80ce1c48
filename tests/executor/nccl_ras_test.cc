// What is asked of NCCL's RAS service, and made of its answers.
#include "executor/cuda/nccl_ras.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <latch>

#include "tests/executor/fake_ras.h"

namespace moeplan::executor::cuda {
namespace {

using testing::FakeRas;
using ::testing::HasSubstr;
using ::testing::Not;

double SecondsOf(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(NcclRasTest, ErrorsAndWarningsOfAStatusAreItsFindings) {
  EXPECT_EQ(RasFindings(testing::kRasStatus),
            "#0-0 (27a079b828ff1a75) INCOMPLETE; Missing communicator data from 1 rank; "
            "#0-0 (27a079b828ff1a75) MISMATCH; Rank 3 -- GPU 1 managed by process 483072 on node 10.0.0.2");
}

TEST(NcclRasTest, NothingIsSaidOfAJobThatIsWell) {
  EXPECT_EQ(RasFindings("NCCL version 2.28.3\n\nErrors\n======\n\nWarnings\n========\n\n"), "");
  EXPECT_EQ(RasFindings(""), "");
}

TEST(NcclRasTest, OfTextThatIsNoStatusTheFirstLinesAreTold) {
  EXPECT_EQ(RasFindings("OK\n\none\n two \nthree\nfour\nfive\n"), "one; two; three; four");
}

TEST(NcclRasTest, FindingsArePrintableAndShort) {
  EXPECT_EQ(RasFindings("Errors\n======\n\x1b[31mrank\t3\x07 \xff\n"), "[31mrank 3");
  const std::string findings = RasFindings("Errors\n======\n" + std::string(100000, 'x'));
  EXPECT_EQ(findings.size(), 1000u);
  EXPECT_THAT(findings, HasSubstr("xxx..."));
}

TEST(NcclRasTest, AsksForTheStatusAndGivesRanksASecond) {
  std::string asked;
  const FakeRas ras([&](int client, const std::string& question) {
    asked = question;
    FakeRas::Send(client, testing::kRasStatus);
  });
  EXPECT_THAT(AskRas(ras.address(), 20), HasSubstr("Rank 3 -- GPU 1"));
  EXPECT_EQ(asked, "TIMEOUT 1\nVERBOSE STATUS\n");
}

TEST(NcclRasTest, AServiceThatDoesNotAnswerInTimeSaysNothing) {
  std::latch over(1);
  const FakeRas ras([&](int client, const std::string&) {
    FakeRas::Send(client, "OK\nErrors\n======\nhalf a sta");
    over.wait();
  });
  EXPECT_LT(SecondsOf([&] { EXPECT_EQ(AskRas(ras.address(), 0.2), ""); }), 5);
  over.count_down();
}

TEST(NcclRasTest, AnAnswerWithoutEndIsNotReadToTheEnd) {
  const FakeRas ras([](int client, const std::string&) {
    const std::string text(1 << 16, 'x');
    while (send(client, text.data(), text.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  EXPECT_LT(SecondsOf([&] { EXPECT_EQ(AskRas(ras.address(), 60), ""); }), 30);
}

TEST(NcclRasTest, WhereNobodyListensNothingIsKnown) {
  std::string address;
  {
    const FakeRas gone([](int, const std::string&) {});
    address = gone.address();
  }
  EXPECT_LT(SecondsOf([&] { EXPECT_EQ(AskRas(address, 60), ""); }), 30);
  for (const char* wrong : {"", "localhost", "localhost:", ":", "no such host:1", "localhost:no port"})
    EXPECT_EQ(AskRas(wrong, 1), "") << wrong;
}

TEST(NcclRasTest, TheEnvironmentMayNameAnotherAddress) {
  ASSERT_EQ(setenv("NCCL_RAS_ADDR", "[::1]:5", /*overwrite=*/1), 0);
  EXPECT_EQ(RasAddress(), "[::1]:5");
  ASSERT_EQ(unsetenv("NCCL_RAS_ADDR"), 0);
  EXPECT_EQ(RasAddress(), "localhost:28028");
}

}  // namespace
}  // namespace moeplan::executor::cuda
