// Which rows of a reproduction hold.
#include "cli/reproduce/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moeplan::cli {
namespace {

using ::testing::Optional;

constexpr Allowed kQuarter = {.share = 0.25}, kTenPoints = {.points = 0.1};

v1::ReproducedRow RowOf(const Figure& figure) {
  v1::ReproducedTable table;
  AddRow(table, figure);
  return table.rows(0);
}

TEST(RowsTest, AGainIsHeldAgainstTheGain) {
  // A speedup of 1.04 is 0.86 of 1.21, and within 15 % of it; its gain is a fifth.
  EXPECT_THAT(Holds(RowOf({.name = "speedup", .paper = 1.21, .ours = 1.04})), Optional(true));
  const v1::ReproducedRow gain =
      RowOf({.name = "gain", .unit = kShare, .paper = 0.21, .ours = 0.04, .why = "because", .allowed = kQuarter});
  EXPECT_THAT(Holds(gain), Optional(false));
  EXPECT_EQ(gain.why(), "because");
  // 0.75 and 1.25 of 20 %.
  for (const double ours : {0.151, 0.249}) {
    EXPECT_THAT(Holds(RowOf({.paper = 0.2, .ours = ours, .why = "x", .allowed = kQuarter})), Optional(true)) << ours;
  }
  for (const double ours : {0.149, 0.251}) {
    EXPECT_THAT(Holds(RowOf({.paper = 0.2, .ours = ours, .why = "x", .allowed = kQuarter})), Optional(false)) << ours;
  }
}

TEST(RowsTest, PointsAreOfTheDifference) {
  EXPECT_THAT(Holds(RowOf({.unit = kShare, .paper = 0.66, .ours = 0.75, .allowed = kTenPoints})), Optional(true));
  EXPECT_THAT(Holds(RowOf({.unit = kShare, .paper = 0.66, .ours = 0.77, .allowed = kTenPoints})), Optional(false));
  EXPECT_THAT(Holds(RowOf({.unit = kShare, .paper = 0.66, .ours = 0.55, .allowed = kTenPoints})), Optional(false));
}

TEST(RowsTest, WhatIsApartHasAReasonInAnyCase) {
  EXPECT_NE(RowOf({.paper = 2, .ours = 1}).why(), "");
  EXPECT_EQ(RowOf({.paper = 2, .ours = 1.9, .why = "because"}).why(), "");
}

TEST(RowsTest, FiguresAreCountedOnceTheyAreCompared) {
  v1::Reproduction reproduction;
  v1::ReproducedTable& table = *reproduction.add_tables();
  AddRow(table, Figure{.paper = 1, .ours = 1});
  AddRow(table, Figure{.paper = 1, .ours = 2});
  AddRow(table, Figure{.paper = 1, .ours = 1, .fitted = true});
  AddRow(table, Figure{.paper = 1, .ours = 1, .compared = false});
  AddRow(table, Figure{.ours = 1});
  AddRow(table, Choice{.paper = "a", .ours = "a"});
  Summarise(reproduction);
  EXPECT_EQ(reproduction.compared(), 2);
  EXPECT_EQ(reproduction.close(), 1);
}

TEST(RowsTest, StatementsHoldWhereBothSayTheSame) {
  v1::ReproducedTable table;
  AddRow(table, Choice{.paper = "yes", .ours = "yes"});
  AddRow(table, Choice{.paper = "yes", .ours = "no"});
  AddRow(table, Choice{.paper = "O1", .ours = "O2", .ratio = 0.9});
  EXPECT_THAT(Holds(table.rows(0)), Optional(true));
  EXPECT_THAT(Holds(table.rows(1)), Optional(false));
  EXPECT_EQ(Holds(table.rows(2)), std::nullopt);
}

}  // namespace
}  // namespace moeplan::cli
