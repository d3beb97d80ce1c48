// Chunks of unequal sizes: the slots are dealt to equal units, and each chunk takes some units that follow each other.
#pragma once

#include <string>
#include <vector>

#include "models/status.h"

namespace moeplan {

// Of chunks that are not all of one size.
inline constexpr int kMostUnequalChunks = 8;
inline constexpr int kMostChunkUnits = 64;

// How many units each chunk takes, of the fewest that give `shares`, which add up to 1. kInvalidInput, with the place
// within `shares`, where that takes more than kMostChunkUnits, or there are more than kMostUnequalChunks of them.
StatusOr<std::vector<int>> UnitsOf(const std::vector<double>& shares);

// "1:2:1"; empty where `shares` are none, or no multiples of anything.
std::string RatioOf(const std::vector<double>& shares);

// The shares of chunks that take so many units.
std::vector<double> SharesOf(const std::vector<int>& units);

}  // namespace moeplan
