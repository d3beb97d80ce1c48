// Rows of a reproduction: a figure that a paper states, ours, whether it holds and, where they are apart, why.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "moeplan/v1/report.pb.h"

namespace moeplan::cli {

// How far ours may be from the paper's figure for the row to hold.
struct Allowed {
  double share = 0.15;  // Of the paper's figure.
  double points = 0;    // Of the difference of two shares, in the place of `share`, where it is above 0.

  bool Holds(double paper, double ours) const;
};
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
  std::string why;       // Why they are apart where they are; kept only there.
  bool fitted = false;   // The testbed was fitted to the paper's figure.
  bool compared = true;  // Else the two stand beside each other and the row has no ratio.
  Allowed allowed;
};
void AddRow(v1::ReproducedTable& table, const Figure& figure);

// A choice, or a statement that holds or does not: neither has a ratio.
struct Choice {
  std::string name;
  std::string paper, ours;
  std::optional<double> ratio;  // The time of ours over that of the paper's.
  std::string why;              // Kept where they differ.
};
void AddRow(v1::ReproducedTable& table, const Choice& choice);

v1::ReproducedTable MakeTable(std::string paper, std::string title);

bool IsChoice(const v1::ReproducedRow& row);
// Absent for a row that compares nothing, was fitted, or is a choice with the ratio of two times.
std::optional<bool> Holds(const v1::ReproducedRow& row);

// Counts the rows of figures that hold or do not.
void Summarise(v1::Reproduction& reproduction);

double Mean(const std::vector<double>& values);

}  // namespace moeplan::cli
