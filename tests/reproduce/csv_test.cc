#include "cli/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moeplan::cli {
namespace {

using ::testing::StartsWith;

TEST(CsvTest, QuotedCellsHoldCommasQuotesAndLineEnds) {
  const auto table = CsvTable::Parse("a,b\r\n\"x, \"\"y\"\"\n\",2\r\n\r\n3,\n", "t.csv");
  ASSERT_TRUE(table.ok()) << table.status().message();
  ASSERT_EQ(table->rows(), 2u);
  EXPECT_EQ(table->Cell(0, "a"), "x, \"y\"\n");
  EXPECT_EQ(table->Cell(0, "b"), "2");
  EXPECT_EQ(table->Cell(1, "b"), "");
  EXPECT_EQ(table->Cell(1, "c"), "");
}

TEST(CsvTest, WhatIsWrittenIsReadAgain) {
  const std::vector<std::string> cells = {"plain", "with, comma", "with \"quote\"", "two\nlines", ""};
  const auto table = CsvTable::Parse(CsvRecord({"a", "b", "c", "d", "e"}) + CsvRecord(cells), "t.csv");
  ASSERT_TRUE(table.ok());
  const char* columns[] = {"a", "b", "c", "d", "e"};
  for (size_t i = 0; i < cells.size(); ++i) EXPECT_EQ(table->Cell(0, columns[i]), cells[i]);
}

TEST(CsvTest, WhatIsWrongIsNamed) {
  EXPECT_EQ(CsvTable::Parse("a,b\n1,2\n1\n", "t.csv").status().message(),
            "t.csv row 2: found 1 cells, expected 2, as the header has");
  EXPECT_EQ(CsvTable::Parse("a\n\"1\n", "t.csv").status().message(), "t.csv row 1: found a quote that is never closed");
  EXPECT_EQ(CsvTable::Parse("\n", "t.csv").status().message(), "t.csv: found nothing, expected a header");
}

TEST(CsvTest, ARowRemembersItsFirstWrongCell) {
  const auto table = CsvTable::Parse("a,b,c\n1.5,x,\n", "t.csv");
  ASSERT_TRUE(table.ok());
  CsvRow row(*table, 0);
  EXPECT_EQ(row.Number("a"), 1.5);
  EXPECT_EQ(row.Number("c", 7), 7);
  EXPECT_TRUE(row.status().ok());
  EXPECT_EQ(row.Count("a", 3), 3);
  EXPECT_EQ(row.Number("b"), 0);
  EXPECT_EQ(row.status().message(), "t.csv row 1: a: found '1.5', expected a whole number");
}

}  // namespace
}  // namespace moeplan::cli
