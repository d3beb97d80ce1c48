// What collectives over groups that nobody measured will cost: a line fitted to all that was measured (link_fit.h), and
// what the measured curves say beyond it.
//
// The bends. Real curves are no lines: protocols switch, efficiency rises with size. What a measured curve has beyond
// the line, log(measured / line) at a size, goes over to the prediction at that size: as a mean over the measured
// groups that reach as far (on one node, or over several), weighted by 1 / (d² + 0.05). d counts doublings: the
// differences of log2 of the ranks and of the ranks on a node; 0.5 more between a gather and its mirror image, 2
// between these and an all-reduce, 4 between an all-to-all and anything else; 1 for another element size. Outside the
// sizes that a curve was measured at it has what it has at its end. A prediction never falls as the size rises.
//
// The interval. As much as the profile lacks around the key asked is held out of what was measured: one curve; all of a
// group, where the key's group was never measured; all of an operation, where that was never measured as far; both. The
// curves held out are predicted from what is left. Each point misses by |log(measured / predicted)|, divided by the
// root of the doublings from the curve's group to the nearest that is left (at least 1): errors of successive doublings
// add up like independent ones. The 90 % quantile of all points' misses, times the stretch of NextMagnitudeBound90 for
// as many curves, or for as many operations where those were held out (1 from nine on), times the same root for the key
// asked, bounds the error of the model; the widest interval of the curves that the prediction leans on is added to it
// in squares. Where nothing can be held out, kUntestedRatio a doubling is assumed, or the bound of an easier question
// where that is more, and said (`tested`).
//
// Entries without contention alone are learnt from. Seconds and bytes. A LinkModel borrows nothing of the profile;
// const use is thread-safe; the same profile gives the same model to the bit.
#pragma once

#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/cost/profile.h"
#include "models/links/link_fit.h"

namespace moeplan {

// An entry of the profile as the model reads it.
struct MeasuredCollective {
  CollectiveKey key;
  LoadedCurve loaded;
  Curve curve;              // Through the same points.
  double interval_log = 0;  // Of the upper end of its 90 % interval.
};

// The uncontended entries that links are learnt from, in the profile's order, at most LinkModel::kMostCurves.
std::vector<MeasuredCollective> CollectivesThatTeach(const Profile& profile);

struct LinkPrediction {
  CollectiveModel model;  // Under the key that was asked for, without contention; a logLog curve with its FitQuality.
  bool tested = false;    // Whether its interval comes from curves that were held out.
};

// "ALL_GATHER groupSize 64 ranksPerNode 8: not measured; extrapolated from links, 90 % interval × 0.61 to 1.6".
std::string Describe(const LinkPrediction& prediction);

class LinkModel {
 public:
  static constexpr double kUntestedRatio = 2;
  // Bounds on work, each evenly chosen where there are more: curves learnt from, curves held out for each of the four
  // ways, points taken of a curve. At most, with all three reached, making a model takes some seconds.
  static constexpr size_t kMostCurves = 512;
  static constexpr size_t kMostHeldOut = 32;
  static constexpr size_t kMostPoints = 32;

  explicit LinkModel(const Profile& profile);

  // Absent: no group that reaches as far was measured (on one node, or over several); an algorithm other than DIRECT
  // that was never measured as far; no load can be counted (LoadOf); limited CTAs; a group of one rank, which is free.
  // The curve has the sizes of the measured curves of that operation and reach, or of that reach where there are none.
  std::optional<LinkPrediction> Predict(CollectiveKey key) const;

  // Absent when the profile has no curve to learn from.
  const std::optional<LinkLine>& line() const { return line_; }

 private:
  // Of the key asked: what was never measured as far as it reaches.
  struct Lack {
    bool group = false;
    bool operation = false;
  };

  struct HeldOut {
    std::vector<double> misses;           // Of all points, for one doubling.
    std::set<std::pair<int, int>> units;  // Curves, or operations where those are held out.
  };

  Lack LackOf(const CollectiveKey& key) const;
  void HoldOut(const Lack& lack);
  // Of the log of a time predicted a doubling away; absent where nothing could be held out.
  std::optional<double> BoundOf(const Lack& lack, bool spans) const;
  double UntestedBound(bool spans) const;

  std::vector<MeasuredCollective> measured_;
  Wires wires_;
  std::optional<LinkLine> line_;
  std::array<std::array<std::array<HeldOut, 2>, 2>, 2> held_out_;  // By Lack (group, operation) and Spans.
};

}  // namespace moeplan
