// Rows of a reproduction: a figure that a paper states, ours, and, where they are apart, why.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "moeplan/v1/report.pb.h"

namespace moeplan::cli {

// Rows this close agree.
inline constexpr double kCloseBy = 0.15;
// Choosing either of two whose times are this close is right.
inline constexpr double kTied = 1e-3;

// What a figure is counted in.
inline constexpr const char* kSeconds = "s";
inline constexpr const char* kFactor = "x";
inline constexpr const char* kShare = "share";
inline constexpr const char* kCount = "";

struct Figure {
  std::string name;
  const char* unit = kFactor;
  std::optional<double> paper, ours;
  std::string why;      // Why they are apart where they are; kept only there.
  bool fitted = false;  // The testbed was fitted to the paper's figure.
};
void AddRow(v1::ReproducedTable& table, const Figure& figure);

struct Choice {
  std::string name;
  std::string paper, ours;
  std::optional<double> ratio;  // The time of ours over that of the paper's.
  std::string why;              // Kept where they differ.
};
void AddRow(v1::ReproducedTable& table, const Choice& choice);

v1::ReproducedTable MakeTable(std::string paper, std::string title);

// Counts the rows that have a ratio and were not fitted, and those of them that agree.
void Summarise(v1::Reproduction& reproduction);

// As a terminal shows it, with an empty line after it.
std::string Text(const v1::ReproducedTable& table);
// "9 of 11 figures ..."; empty where nothing is compared.
std::string Summary(const v1::Reproduction& reproduction);

double Mean(const std::vector<double>& values);

}  // namespace moeplan::cli
