#include "planner/rules/monta.h"

#include <array>

#include "models/text.h"
#include "models/timeline/pipeline_time.h"
#include "planner/rules/rule_costs.h"

namespace moeplan {
namespace {

// MoNTA's operations on one chunk, equations 8–10: AA over the expert group, AG over the tensor group, D2D; the latter
// two also beside each other.
class Operations {
 public:
  explicit Operations(RuleCosts& costs)
      : costs_(costs),
        all_to_all_(costs.KeyOver(Collective::kAllToAll, Group::kExpert)),
        all_gather_(costs.KeyOver(Collective::kAllGather, Group::kTensor)),
        gather_beside_(costs.KeyOver(Collective::kAllGather, Group::kTensor, Contention::kWithCopy)),
        copy_(costs.CopyKey()),
        copy_beside_(costs.CopyKey(Contention::kWithAllGather)) {}

  double AA(double bytes) const { return costs_.TimeS(all_to_all_, bytes); }
  double AG(double bytes) const { return costs_.TimeS(all_gather_, bytes); }
  double D2D(double bytes) const { return costs_.TimeS(copy_, bytes); }
  double AGBesideD2D(double bytes) const { return costs_.TimeS(gather_beside_, bytes); }
  double D2DBesideAG(double bytes) const { return costs_.TimeS(copy_beside_, bytes); }

 private:
  RuleCosts& costs_;
  const CostKey all_to_all_, all_gather_, gather_beside_, copy_, copy_beside_;
};

// The loop of Algorithms 1 and 2. Lines 18–20 as printed assign T and T_min the wrong way round and return the last N;
// meant is the N of the smallest T, the smaller N on a tie.
template <typename TimeOfChunks>
std::optional<ChunkedTime> BestChunks(const Workload& workload, double I, TimeOfChunks time_s) {
  const int t = workload.layout.tensor_parallel;
  std::optional<ChunkedTime> best;
  for (int N = 1; N <= workload.max_chunks; ++N) {
    if (I / N / t < workload.min_chunk_bytes || I / N < workload.min_chunk_bytes) break;
    const double T = time_s(N);
    if (!best || T < best->time_s) best = ChunkedTime{N, T};
  }
  return best;
}

// Algorithm 1: the gather and the copy of a chunk are one stage.
std::optional<ChunkedTime> BestO2(const Workload& workload, double I, const Operations& run) {
  const int t = workload.layout.tensor_parallel;
  return BestChunks(workload, I, [&](int N) {
    return PipelineTime(std::array{run.AA(I / N / t), run.AG(I / N) + run.D2D(I / N)}, N);
  });
}

// Algorithm 2: they are two stages, run at the same time and so slow each other. As printed it takes the copy to be
// never the longest of the three.
std::optional<ChunkedTime> BestO3(const Workload& workload, double I, const Operations& run) {
  const int t = workload.layout.tensor_parallel;
  return BestChunks(workload, I, [&](int N) {
    return PipelineTime(std::array{run.AA(I / N / t), run.AGBesideD2D(I / N), run.D2DBesideAG(I / N)}, N);
  });
}

// Algorithm 3; ties go to the simpler strategy.
Family Select(const MontaAnswer& answer) {
  Family choice = Family::kMontaO1;
  double T_min = answer.o1_time_s;
  const auto consider = [&](Family family, const std::optional<ChunkedTime>& chunked) {
    if (!chunked || chunked->time_s >= T_min) return;
    choice = family;
    T_min = chunked->time_s;
  };
  consider(Family::kMontaO2, answer.o2);
  consider(Family::kMontaO3, answer.o3);
  return choice;
}

std::string CopyRemark(const Layout& layout) {
  return StrCat(
      "rule monta: the profile lacks DEVICE_COPY, so O2 and O3 are not judged and O1 is chosen; measure with: ",
      MeasureCommand(layout));
}

}  // namespace

StatusOr<MontaAnswer> MontaRule(const Workload& workload, const Profile& profile, PriceNotes& notes) {
  RuleCosts costs(workload, profile);
  const Operations run(costs);
  const double I = SizesOf(workload.layer, workload.layout).input_bytes;
  const int t = workload.layout.tensor_parallel;
  MontaAnswer answer;
  answer.t_baseline_s = run.AA(I);
  answer.o1_time_s = run.AA(I / t) + run.AG(I);
  RETURN_IF_ERROR(costs.Missing());
  if (costs.HasCopy()) {
    answer.o2 = BestO2(workload, I, run);
    answer.o3 = BestO3(workload, I, run);
  } else {
    notes.remarks.insert(CopyRemark(workload.layout));
  }
  answer.choice = Select(answer);
  notes.Merge(costs.notes());
  return answer;
}

}  // namespace moeplan
