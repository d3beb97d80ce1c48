// Which candidates a layer has, before anyone prices them: shared by who searches and by who measures for the search.
#pragma once

#include <vector>

#include "models/schedule/knobs.h"
#include "models/workload/workload.h"

namespace moeplan {

// From the simplest to the most involved, own ones last; the order that settles ties.
inline std::vector<Family> Families() { return AllFrom(Family::kBaseline); }

// The knobs of a family apart from its chunk count, simplest first: DIRECT all-to-alls; PARM_S2, where there is both
// something to exchange and something to gather, with the overlapped gather; then each other all-to-all algorithm that
// is allowed over the family's group.
std::vector<Knobs> VariantsOf(Family family, const Layout& layout, int gpus_per_node);

// A variant with the codecs that `workload` lets it use, dispatch and combine apart; itself first.
std::vector<Knobs> WithCodecs(const Knobs& variant, const Workload& workload);

// Chunk counts worth a graph when up to `most` are allowed: beyond 64, one chunk more changes each message by less than
// a fiftieth, while graphs keep growing.
inline constexpr int kMostChunksOneByOne = 64;
inline constexpr int kMostChunks = 1024;
std::vector<int> PowersOfTwo(int most);  // 1, 2, 4 ... up to most and kMostChunks.
std::vector<int> ChunkCounts(int most);  // Every one up to kMostChunksOneByOne, then powers of two.
bool IsPowerOfTwo(int number);

// How slots are cut into a few pieces that are not all of one size: the units of each piece (models/schedule/
// chunk_units.h), kShareUnits in all. Up to kMostUnequalPieces pieces there are few enough to try each.
inline constexpr int kShareUnits = 8;
inline constexpr int kMostUnequalPieces = 4;
std::vector<std::vector<int>> UnequalSplits(int pieces);

}  // namespace moeplan
