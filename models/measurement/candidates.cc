#include "models/measurement/candidates.h"

#include <algorithm>
#include <bit>

#include "models/all_to_all/algorithm.h"
#include "models/schedule/schedules.h"
#include "models/workload/codec.h"
#include "models/workload/groups.h"

namespace moeplan {

std::vector<Knobs> VariantsOf(Family family, const Layout& layout, int gpus_per_node) {
  std::vector<Knobs> variants = {{.family = family}};
  const Knobs overlapped = {.family = family, .overlapped_gather = true};
  if (OverlappedGatherAllowed(overlapped, layout).ok()) variants.push_back(overlapped);
  for (const AllToAllAlgorithm algorithm : IndirectAlgorithms()) {
    const bool allowed = ExchangeAllowed(algorithm, family, layout, gpus_per_node).ok();
    if (allowed) variants.push_back({.family = family, .all_to_all = algorithm});
  }
  return variants;
}

std::vector<Knobs> WithCodecs(const Knobs& variant, const Workload& workload) {
  std::vector<Knobs> variants = {variant};
  const auto codecs = [&](Codec named) {
    std::vector<Codec> allowed = {Codec::kNone};
    for (const Codec codec : LossyCodecs()) {
      const bool may_be = !workload.named_codecs_only || codec == named;
      if (may_be && CodecAllowed(codec, variant.family, workload).ok()) allowed.push_back(codec);
    }
    return allowed;
  };
  for (const Codec dispatch : codecs(workload.dispatch_codec)) {
    for (const Codec combine : codecs(workload.combine_codec)) {
      Knobs knobs = variant;
      knobs.dispatch_codec = dispatch;
      knobs.combine_codec = combine;
      if (knobs == variant) continue;
      if (!knobs.overlapped_gather || OverlappedGatherAllowed(knobs, workload.layout).ok()) variants.push_back(knobs);
    }
  }
  return variants;
}

std::vector<int> PowersOfTwo(int most) {
  std::vector<int> counts;
  for (int count = 1; count <= std::min(most, kMostChunks); count *= 2) counts.push_back(count);
  return counts;
}

std::vector<int> ChunkCounts(int most) {
  std::vector<int> counts;
  for (int count = 1; count <= std::min(most, kMostChunksOneByOne); ++count) counts.push_back(count);
  for (const int count : PowersOfTwo(most)) {
    if (count > kMostChunksOneByOne) counts.push_back(count);
  }
  return counts;
}

bool IsPowerOfTwo(int number) { return number > 0 && std::has_single_bit(static_cast<unsigned>(number)); }

namespace {

void AddSplits(int units, int pieces, std::vector<int>& split, std::vector<std::vector<int>>& all) {
  if (pieces == 1) {
    split.push_back(units);
    const bool equal = std::ranges::all_of(split, [&](int piece) { return piece == units; });
    if (!equal) all.push_back(split);
    split.pop_back();
    return;
  }
  for (int piece = 1; piece <= units - (pieces - 1); ++piece) {
    split.push_back(piece);
    AddSplits(units - piece, pieces - 1, split, all);
    split.pop_back();
  }
}

}  // namespace

std::vector<std::vector<int>> UnequalSplits(int pieces) {
  std::vector<std::vector<int>> all;
  std::vector<int> split;
  AddSplits(kShareUnits, pieces, split, all);
  return all;
}

}  // namespace moeplan
