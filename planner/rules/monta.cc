#include "planner/rules/monta.h"

#include <array>
#include <vector>

#include "models/text.h"
#include "planner/rules/rule_costs.h"
#include "planner/ties.h"

namespace moeplan::planner {
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

  double AA(double bytes, const char* symbol) const { return costs_.TimeS(all_to_all_, bytes, symbol); }
  double AG(double bytes, const char* symbol) const { return costs_.TimeS(all_gather_, bytes, symbol); }
  double D2D(double bytes, const char* symbol) const { return costs_.TimeS(copy_, bytes, symbol); }
  double AGBesideD2D(double bytes, const char* symbol) const { return costs_.TimeS(gather_beside_, bytes, symbol); }
  double D2DBesideAG(double bytes, const char* symbol) const { return costs_.TimeS(copy_beside_, bytes, symbol); }

 private:
  RuleCosts& costs_;
  const CostKey all_to_all_, all_gather_, gather_beside_, copy_, copy_beside_;
};

// The loop of Algorithms 1 and 2. Lines 18–20 as printed assign T and T_min the wrong way round and return the last N;
// meant is the N of the smallest T, the smaller N on a tie.
template <typename TimeOfChunks>
StatusOr<std::optional<ChunkedTime>> BestChunks(const Workload& workload, double I, TimeOfChunks time_s,
                                                const StopSignals& stop) {
  const int t = workload.layout.tensor_parallel;
  std::vector<double> T;  // T[N - 1] is the time of N chunks.
  for (int N = 1; N <= workload.max_chunks; ++N) {
    if (I / N / t < workload.min_chunk_bytes || I / N < workload.min_chunk_bytes) break;
    if (stop.Requested()) return StoppedBeforeAnswer("monta");
    T.push_back(time_s(N));
  }
  if (T.empty()) return std::optional<ChunkedTime>();
  const size_t best = FirstOfSmallest(T);
  return std::optional(ChunkedTime{static_cast<int>(best) + 1, T[best]});
}

// Algorithm 1: the gather and the copy of a chunk are one stage.
double TimeOfO2(double I, int t, int N, const Operations& run, RuleCosts& costs) {
  const double exchange_s = run.AA(I / N / t, "A2A_EP(I/(N·t))");
  const double gather_s = run.AG(I / N, "AG_MP(I/N)"), copy_s = run.D2D(I / N, "COPY(I/N)");
  return costs.PipelineS(std::array{exchange_s, gather_s + copy_s}, std::array{1, 2}, N);
}
constexpr char kO2[] =
    "a pipeline of N chunks in two stages, A2A_EP(I/(N·t)) and AG_MP(I/N) + COPY(I/N): their sum + (N − 1) × the "
    "longer";

// Algorithm 2: they are two stages, run at the same time and so slow each other. As printed it takes the copy to be
// never the longest of the three.
double TimeOfO3(double I, int t, int N, const Operations& run, RuleCosts& costs) {
  const double exchange_s = run.AA(I / N / t, "A2A_EP(I/(N·t))");
  const double gather_s = run.AGBesideD2D(I / N, "AG_MP(I/N) beside COPY");
  const double copy_s = run.D2DBesideAG(I / N, "COPY(I/N) beside AG_MP");
  return costs.PipelineS(std::array{exchange_s, gather_s, copy_s}, std::array{1, 1, 1}, N);
}
constexpr char kO3[] =
    "a pipeline of N chunks in three stages, A2A_EP(I/(N·t)), AG_MP(I/N) beside COPY and COPY(I/N) beside AG_MP: their "
    "sum + (N − 1) × the longest";

// The time of the best N once more, with what it is made of.
template <typename TimeOfChunks>
void Explain(const char* name, const char* formula, const std::optional<ChunkedTime>& best, TimeOfChunks time_s,
             RuleCosts& costs) {
  if (!costs.explains() || !best) return;
  costs.Define(StrCat("N of ", name, " = ", best->chunks));
  costs.Named(name, formula, [&] { return time_s(best->chunks); });
}

// Algorithm 3; ties go to the simpler strategy.
Family Select(const MontaAnswer& answer) {
  std::vector<Family> strategies = {Family::kMontaO1};
  std::vector<double> T = {answer.o1_time_s};
  const auto consider = [&](Family family, const std::optional<ChunkedTime>& chunked) {
    if (!chunked) return;
    strategies.push_back(family);
    T.push_back(chunked->time_s);
  };
  consider(Family::kMontaO2, answer.o2);
  consider(Family::kMontaO3, answer.o3);
  return strategies[FirstOfSmallest(T)];
}

std::string CopyRemark(const Layout& layout) {
  return StrCat(
      "rule monta: the profile lacks DEVICE_COPY, so O2 and O3 are not judged and O1 is chosen; measure with: ",
      MeasureCommand(layout));
}

const char* NameOf(Family choice) {
  if (choice == Family::kMontaO2) return "O2";
  return choice == Family::kMontaO3 ? "O3" : "O1";
}

}  // namespace

StatusOr<MontaAnswer> MontaRule(const Workload& workload, const Profile& profile, PriceNotes& notes,
                                ExplainedRule* explained, const StopSignals& stop) {
  RuleCosts costs(workload, profile, explained);
  const Operations run(costs);
  const double I = SizesOf(workload.layer, workload.layout).input_bytes;
  const int t = workload.layout.tensor_parallel;
  MontaAnswer answer;
  if (costs.explains()) {
    costs.Define(StrCat("I = B·L·M·bpe = ", I, " bytes"));
    costs.Define(StrCat("t = ", t));
  }
  answer.t_baseline_s = costs.Named("baseline", "A2A_EP(I)", [&] { return run.AA(I, "A2A_EP(I)"); });
  answer.o1_time_s = costs.Named("O1", "A2A_EP(I/t) + AG_MP(I)", [&] {
    const double exchange_s = run.AA(I / t, "A2A_EP(I/t)");
    return exchange_s + run.AG(I, "AG_MP(I)");
  });
  RETURN_IF_ERROR(costs.Missing());
  if (costs.HasCopy()) {
    const auto o2_time_s = [&](int N) { return TimeOfO2(I, t, N, run, costs); };
    const auto o3_time_s = [&](int N) { return TimeOfO3(I, t, N, run, costs); };
    ASSIGN_OR_RETURN(answer.o2, BestChunks(workload, I, o2_time_s, stop));
    ASSIGN_OR_RETURN(answer.o3, BestChunks(workload, I, o3_time_s, stop));
    Explain("O2", kO2, answer.o2, o2_time_s, costs);
    Explain("O3", kO3, answer.o3, o3_time_s, costs);
  } else {
    notes.remarks.insert(CopyRemark(workload.layout));
  }
  answer.choice = Select(answer);
  costs.Choose(NameOf(answer.choice));
  notes.Merge(costs.notes());
  return answer;
}

}  // namespace moeplan::planner
