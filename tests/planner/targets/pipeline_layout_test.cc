#include "planner/targets/pipeline_layout.h"

#include <random>
#include <string>

namespace moeplan::planner {
namespace {

TEST(PipelineLayoutTest, IsWrittenWithRepetitions) {
  EXPECT_EQ(PipelineLayoutText({{4}, 0}), "Et*4L");
  EXPECT_EQ(PipelineLayoutText({{2, 3, 3, 2}, 1}), "Et*2|(t*3|)*2t*2mL");
  EXPECT_EQ(PipelineLayoutText({{1, 1, 1, 1}, 0}), "Et|(t|)*2tL");
  EXPECT_EQ(PipelineLayoutText({{0, 4, 4, 0}, 2}), "E|(t*4|)*2m*2L");
}

// As published recipes have them (Megatron-Bridge, DeepSeek-V3 on GB200 and Kimi K2).
TEST(PipelineLayoutTest, PublishedOnesAreRead) {
  const auto read = ParsePipelineLayout("Et*4|(t*4|)*14tmL");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->layers.size(), 16u);
  EXPECT_EQ(read->layers.front(), 4);
  EXPECT_EQ(read->layers.back(), 1);
  EXPECT_EQ(read->next_tokens, 1);
  const auto spaced = ParsePipelineLayout("Et, t | (tt|)*2 , t L");
  ASSERT_TRUE(spaced.ok()) << spaced.status().message();
  EXPECT_EQ(spaced->layers, (std::vector<int>{2, 2, 2, 1}));
}

TEST(PipelineLayoutTest, WhatIsWrittenReadsBack) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    PipelineLayout layout = {.layers = {}, .next_tokens = static_cast<int>(random() % 3)};
    for (unsigned stages = 1 + random() % 12; stages > 0; --stages) {
      layout.layers.push_back(static_cast<int>(random() % 4));
    }
    const std::string text = PipelineLayoutText(layout);
    const auto read = ParsePipelineLayout(text);
    ASSERT_TRUE(read.ok()) << text << ": " << read.status().message();
    EXPECT_EQ(*read, layout) << text;
  }
}

TEST(PipelineLayoutTest, WhatIsNoneIsRefused) {
  for (const char* text :
       {"", "t|t", "Et|t", "EtL|t", "tE|L", "Et*|L", "Et*99999L", "E(t|", "Et)L", "Ex|L", "Etm|tL",
        "E(t|)*4096(t|)*4096(t|)*4096(t|)*4096(t|)*4096L", "E((((((((((((((((((t))))))))))))))))))L"}) {
    EXPECT_FALSE(ParsePipelineLayout(text).ok()) << text;
  }
}

}  // namespace
}  // namespace moeplan::planner
