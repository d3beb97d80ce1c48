#include "planner/advice/advise.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "planner/advice/layout_words.h"
#include "planner/layout/moe_plans.h"
#include "planner/layout/price_layout.h"
#include "planner/layout/rank_layouts.h"

namespace moeplan::planner {
namespace {

constexpr int kRankedOfEach = 2;  // Layouts of each ranking that are run in every way.
constexpr int kMostReasons = 3, kMostToMeasure = 3;
constexpr double kTie = 0.01;  // Steps no further apart than that are not told apart by anybody.
// A layout that does not fit takes no time at all; among reasons it ranks as one that takes so many times as long.
constexpr double kWorthOfFitting = 1.5;
constexpr double kSameTime = 1e-3;  // Decisions that move the step by less are none.

constexpr Dispatcher kDispatchers[] = {Dispatcher::kAllToAll, Dispatcher::kAllGather, Dispatcher::kDeepEp,
                                       Dispatcher::kHybridEp};
// Whether exchanges of experts run beside another micro-batch, and whether weight gradients then wait.
struct Overlap {
  bool overlaps = false, delays = false;
};
constexpr Overlap kOverlaps[] = {{false, false}, {true, false}, {true, true}};

// Says what is computed again. WaysToComputeAgain goes from nothing to all: later ways take longer and need less
// memory.
struct Again {
  Recompute recompute = Recompute::kNone;
  RecomputeModules modules;
};

std::vector<Again> WaysToComputeAgain(const ModelConfig& model) {
  using enum RecomputeModule;
  std::vector<Again> ways = {{}};
  const auto select = [&](RecomputeModules modules) { ways.push_back({Recompute::kSelective, modules}); };
  const bool latent = model.latent_attention.kv_rank > 0, experts = model.moe_layers() > 0;
  const auto with = [&](RecomputeModules modules) {
    if (latent) modules.Add(kMlaUpProj);
    return modules;
  };
  select(with(experts ? RecomputeModules{kMoeAct} : RecomputeModules{kLayerNorm}));
  if (experts) select(with({kMoeAct, kLayerNorm}));
  if (experts) select(with({kLayerNorm, kMoe}));
  ways.push_back({Recompute::kFull, {}});
  return ways;
}

void Set(const Again& again, LayoutRequest& request) {
  request.recompute = again.recompute;
  request.recompute_modules = again.modules;
}

void SetOverlap(bool overlaps, bool delays, const ModelConfig& model, LayoutRequest& request) {
  request.overlaps_experts = overlaps;
  request.delays_weight_gradients = overlaps && delays;
  // Both cannot be hidden by the same frameworks.
  request.overlaps_shared_experts = !(overlaps && model.shared_hidden_dim > 0);
}

// The CUDA context, communicators' buffers and the allocator's gaps take memory that no tensor has: an assumption.
constexpr double kUsableMemory = 0.95;

Profile WithRoom(const Profile& profile) {
  Profile roomy = profile;
  roomy.cluster.device_memory_bytes *= kUsableMemory;
  return roomy;
}

// Counts what somebody has to set up, get to work and keep in mind beside a plain job.
int DeparturesOf(const StepQuestion& question) {
  const LayoutRequest& request = question.request;
  return (question.layout.tensor_parallel > 1 ? 1 : 0) + (question.layout.context_parallel > 1 ? 1 : 0) +
         (question.layout.pipeline_parallel > 1 ? 1 : 0) + (request.virtual_stages > 1 ? 1 : 0) +
         (request.dispatcher != Dispatcher::kAllToAll ? 1 : 0) + (request.dispatcher == Dispatcher::kHybridEp ? 1 : 0) +
         (request.overlaps_experts ? 1 : 0) + (request.delays_weight_gradients ? 1 : 0) +
         (request.recompute != Recompute::kNone ? 1 : 0);
}

// Tells two ways to run a layout apart. Beside and Improve change nothing else: the rest is Plain's.
std::string KeyOf(const StepQuestion& question) {
  const LayoutRequest& request = question.request;
  const Layout& layout = question.layout;
  std::string key;
  for (const int number :
       {layout.tensor_parallel, layout.expert_parallel, layout.context_parallel, layout.pipeline_parallel,
        question.micro_batch, request.virtual_stages, static_cast<int>(request.recompute), request.recompute_layers,
        request.recompute_chunk, static_cast<int>(request.dispatcher), static_cast<int>(request.overlaps_experts),
        static_cast<int>(request.delays_weight_gradients)}) {
    key += StrCat(number, " ");
  }
  for (int i = 0; i < kRecomputeModules; ++i) {
    key += request.recompute_modules.Has(static_cast<RecomputeModule>(i)) ? '1' : '0';
  }
  return key;
}

class Adviser {
 public:
  Adviser(const AdviceRequest& request, const Profile& profile, std::stop_token cancelled)
      : request_(request),
        profile_(profile),
        roomy_(WithRoom(profile)),
        stop_{.cancelled = std::move(cancelled), .out_of_time = {}},
        pricer_(Plain(), roomy_) {}

  StatusOr<LayoutAdvice> Run() {
    // A layout that breaks a rule is refused before anything is searched.
    if (request_.mine) {
      ASSIGN_OR_RETURN(advice_.mine, Whole(*request_.mine));
    }
    if (request_.live_only) {
      ChangeMine();
    } else {
      ASSIGN_OR_RETURN(const std::vector<StepQuestion> starts, Starts());
      for (const StepQuestion& start : starts) {
        if (stop_.Requested()) break;
        Improve(start);
      }
    }
    if (stop_.Requested()) return Cancelled("advice was cancelled");
    if (taken_.empty()) return NothingTaken();
    advice_.considered = static_cast<int>(steps_.size());
    ASSIGN_OR_RETURN(advice_.best, Whole(Best()));
    RETURN_IF_ERROR(SetMine());
    RETURN_IF_ERROR(SetRunnerUp());
    SetReasons();
    SetMeasureNext();
    advice_.warnings = advice_.best.step.warnings;
    return std::move(advice_);
  }

  std::optional<StepQuestion> Complete(const OpenSettings& open) {
    const StepQuestion& mine = *request_.mine;
    for (const LayoutRequest& way : WaysToComplete(open)) {
      StepQuestion question = mine;
      question.request = way;
      Taken(question);
    }
    return taken_.empty() ? std::nullopt : std::optional(Best());
  }

  // Gives what is the job's and no decision, as the layout to compare with has it, where there is one.
  LayoutRequest Plain() const {
    LayoutRequest plain;
    if (request_.mine) {
      const LayoutRequest& mine = request_.mine->request;
      plain.capacity_factor = mine.capacity_factor;
      plain.next_tokens = mine.next_tokens;
      plain.attention = mine.attention;
      plain.gradient_bytes = mine.gradient_bytes;
    }
    plain.model = request_.model;
    plain.gpus = request_.gpus;
    plain.global_batch = request_.global_batch;
    plain.sequence_length = request_.sequence_length;
    plain.zero_stage = request_.zero_stage;
    plain.as_frameworks = true;
    plain.precision = request_.precision;
    plain.top = kRankedOfEach;
    return plain;
  }

  StatusOr<StepQuestion> Usual() {
    const int domain = std::min(profile_.cluster.gpus_per_node, request_.gpus);
    const int experts = request_.model.moe_layers() > 0 ? request_.model.experts : 1;
    int within = 1;  // The most ranks of a domain that the experts divide over.
    for (int ranks = 1; ranks <= domain; ++ranks) {
      if (domain % ranks == 0 && experts % ranks == 0) within = ranks;
    }
    Status first;
    // Contexts last: they are usual for long sequences alone.
    for (int contexts = 1; contexts <= request_.gpus; contexts *= 2) {
      if (stop_.Requested()) break;
      if (const auto usual = UsualWith(contexts, domain, within, experts, first)) return *usual;
    }
    return Infeasible(StrCat("no usual layout of the model fits ", request_.gpus, " GPUs",
                             first.ok() ? "" : StrCat(" (", first.message(), ")"),
                             "; give more GPUs, or name a layout to compare with (--mine)"));
  }

 private:
  std::optional<StepQuestion> UsualWith(int contexts, int domain, int within, int experts, Status& first) {
    for (int tensor = 1; tensor <= domain; tensor *= 2) {
      for (int expert = within; expert <= experts; expert *= 2) {
        for (int pipeline = 1; pipeline <= std::min(request_.gpus, request_.model.layers()); ++pipeline) {
          if (request_.gpus % pipeline != 0) continue;
          for (const Again& again : WaysToComputeAgain(request_.model)) {
            StepQuestion question = {.request = Plain(), .horizontal_contexts = false};
            Set(again, question.request);
            question.layout = {.tensor_parallel = tensor,
                               .expert_parallel = expert,
                               .context_parallel = contexts,
                               .pipeline_parallel = pipeline};
            question.layout.data_parallel = 0;
            const StatusOr<BareStep> step = pricer_.Price(question, stop_);
            const bool fits = step.ok() && step->missing_bytes <= 0;
            if (fits && (!request_.takes || request_.takes(question))) return question;
            if (!step.ok() && first.ok()) first = step.status();
          }
        }
      }
    }
    return std::nullopt;
  }

  std::vector<LayoutRequest> WaysToComplete(const OpenSettings& open) const {
    std::vector<LayoutRequest> ways = {request_.mine->request};
    const auto branch = [&](const auto& choices, auto set) {
      std::vector<LayoutRequest> all;
      for (const LayoutRequest& way : ways) {
        for (const auto& choice : choices) set(choice, all.emplace_back(way));
      }
      ways = std::move(all);
    };
    const bool experts = request_.model.moe_layers() > 0;
    if (open.recompute) branch(WaysToComputeAgain(request_.model), &Set);
    if (open.dispatcher && experts) {
      branch(kDispatchers, [&](Dispatcher dispatcher, LayoutRequest& way) { SetDispatcher(dispatcher, way); });
    }
    if (open.overlap && experts) {
      branch(kOverlaps, [&](const auto& choice, LayoutRequest& way) {
        SetOverlap(choice.overlaps, choice.delays, request_.model, way);
      });
    }
    return ways;
  }

  // ---- Round one.

  // Takes the transport of mine, else the one that most measured costs are of.
  void SetDispatcher(Dispatcher dispatcher, LayoutRequest& request) const {
    request.dispatcher = dispatcher;
    request.transport = Transport::kNccl;
    if (request_.mine && request_.mine->request.dispatcher == dispatcher) {
      request.transport = request_.mine->request.transport;
      return;
    }
    std::ptrdiff_t most = 0;
    for (const Transport transport : {Transport::kNccl, Transport::kNvshmem, Transport::kUccl}) {
      const auto measured = std::ranges::count_if(profile_.collectives, [&](const CollectiveModel& entry) {
        return SendsOnceToANode(dispatcher) && entry.key.dispatcher == dispatcher && entry.key.transport == transport;
      });
      if (measured > most) most = measured, request.transport = transport;
    }
  }

  // Ways to run a layout that decide which layouts are good.
  std::vector<LayoutRequest> WaysToRank() const {
    std::vector<LayoutRequest> ways;
    const bool experts = request_.model.moe_layers() > 0;
    for (const Dispatcher dispatcher : {Dispatcher::kAllToAll, Dispatcher::kDeepEp}) {
      if (dispatcher != Dispatcher::kAllToAll && !experts) continue;
      const std::vector<Again> agains = WaysToComputeAgain(request_.model);
      for (const Again& again : agains) {
        for (const int stages : {1, 2, 4}) {
          for (const bool overlaps : {false, true}) {
            // The others are found from these.
            const bool end = &again == &agains.front() || &again == &agains.back();
            const bool plain = !overlaps && (stages == 1 || (stages == 4 && end));
            const bool hidden = overlaps && experts && &again - agains.data() < 2;
            if (!plain && !hidden) continue;
            LayoutRequest way = Plain();
            SetDispatcher(dispatcher, way);
            way.virtual_stages = stages;
            Set(again, way);
            SetOverlap(overlaps, /*delays=*/false, request_.model, way);
            ways.push_back(std::move(way));
          }
        }
      }
    }
    return ways;
  }

  // Each by itself, so that threads change nothing of the answers.
  std::vector<StatusOr<LayoutAnswer>> Ranked(const std::vector<LayoutRequest>& ways) const {
    std::vector<StatusOr<LayoutAnswer>> answers(ways.size());
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      for (size_t i = next++; i < ways.size(); i = next++) {
        answers[i] = RankLayouts(ways[i], roomy_, {.cancelled = stop_.cancelled});
      }
    };
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < std::min<size_t>(request_.threads, ways.size()); ++i) threads.emplace_back(work);
    work();
    threads.clear();
    return answers;
  }

  StatusOr<std::vector<StepQuestion>> Starts() {
    std::vector<StepQuestion> starts;
    Status refused;
    std::optional<double> least_missing_bytes;
    const std::vector<LayoutRequest> ways = WaysToRank();
    const std::vector<StatusOr<LayoutAnswer>> answers = Ranked(ways);
    for (size_t i = 0; i < ways.size(); ++i) {
      const StatusOr<LayoutAnswer>& answer = answers[i];
      if (!answer.ok() && refused.ok()) refused = answer.status();
      if (!answer.ok()) continue;
      if (answer->layouts.empty()) {
        least_missing_bytes =
            std::min(least_missing_bytes.value_or(answer->least_missing_bytes), answer->least_missing_bytes);
      }
      for (const RankedLayout& ranked : answer->layouts) {
        starts.push_back({.request = ways[i],
                          .layout = ranked.layout,
                          .micro_batch = ranked.micro_batch,
                          .horizontal_contexts = ranked.horizontal_contexts});
      }
    }
    if (request_.mine) starts.push_back(*request_.mine);
    if (!starts.empty()) return starts;
    if (!least_missing_bytes) return refused;
    return Infeasible(StrCat("no layout fits ", request_.gpus, " GPUs: of the smallest a GPU lacks ",
                             BriefNumber(*least_missing_bytes / 1e9), " GB; give more GPUs"));
  }

  // ---- Round two: from each start to whatever is better beside it, as long as something is.

  void Improve(const StepQuestion& from) {
    // Frameworks lay contexts along the experts' ranks.
    StepQuestion at = {
        .request = Plain(), .layout = from.layout, .micro_batch = from.micro_batch, .horizontal_contexts = false};
    at.layout.data_parallel = 0;
    at.layout.expert_sharding_parallel = 1;
    at.request.virtual_stages = from.request.virtual_stages;
    Set({from.request.recompute, from.request.recompute_modules}, at.request);
    SetDispatcher(from.request.dispatcher, at.request);
    SetOverlap(from.request.overlaps_experts, from.request.delays_weight_gradients, request_.model, at.request);
    double best_s = Taken(at) ? *StepS(at) : 0;
    for (bool moved = true; moved && !stop_.Requested();) {
      moved = false;
      StepQuestion best = at;
      for (StepQuestion& beside : Beside(at)) {
        const std::optional<double> step_s = StepS(beside);
        if (!step_s || (best_s > 0 && *step_s >= best_s * (1 - 1e-9)) || !Taken(beside)) continue;
        best_s = *step_s, best = std::move(beside), moved = true;
      }
      at = std::move(best);
    }
  }

  // Takes the place of the search where only a running job's settings may change.
  void ChangeMine() {
    const StepQuestion& mine = *request_.mine;
    const AdviceRequest::Live& live = *request_.live_only;
    Taken(mine);
    const bool all_again = mine.request.recompute == Recompute::kFull;
    StepQuestion one = mine;
    if (live.recompute && all_again) {
      Set({}, one.request);
      one.request.recompute_layers = 0;
      Taken(one);
    }
    if (!live.recompute && !all_again) return;
    one.request.recompute = Recompute::kFull;
    one.request.recompute_modules = {};
    one.request.recompute_layers = 0;
    if (live.recompute) Taken(one);
    // How many layers keep one input is, as how many are computed again, a number that the block of layers reads.
    one.request.recompute_chunk = 1;
    if (live.recompute && live.recompute_layers) Taken(one);
    for (int again = 1; live.recompute_layers && again < LayersOfLargestStage(mine); ++again) {
      one.request.recompute_layers = again;
      Taken(one);
    }
  }

  int LayersOfLargestStage(const StepQuestion& question) const {
    const std::vector<int>& stages = question.request.stages;
    if (!stages.empty()) return *std::ranges::max_element(stages);
    const int even = std::max(1, question.layout.pipeline_parallel * question.request.virtual_stages);
    return (request_.model.layers() + even - 1) / even;
  }

  std::vector<StepQuestion> Beside(const StepQuestion& at) const {
    std::vector<StepQuestion> beside;
    const auto add = [&](auto change) {
      StepQuestion one = at;
      change(one);
      beside.push_back(std::move(one));
    };
    const auto scale = [&](int StepQuestion::*number, int Layout::*degree, int LayoutRequest::*setting) {
      for (const int factor : {2, 3}) {
        for (const bool up : {false, true}) {
          add([&](StepQuestion& one) {
            int& value = number != nullptr   ? one.*number
                         : degree != nullptr ? one.layout.*degree
                                             : one.request.*setting;
            value = up ? factor * value : std::max(1, value / factor);
          });
        }
      }
    };
    scale(&StepQuestion::micro_batch, nullptr, nullptr);
    for (int Layout::*degree : {&Layout::tensor_parallel, &Layout::context_parallel, &Layout::pipeline_parallel}) {
      scale(nullptr, degree, nullptr);
    }
    scale(nullptr, nullptr, &LayoutRequest::virtual_stages);
    // A degree is traded for another, so that a rank keeps its share.
    using Number = int& (*)(StepQuestion&);
    constexpr Number kTraded[] = {[](StepQuestion& one) -> int& { return one.layout.tensor_parallel; },
                                  [](StepQuestion& one) -> int& { return one.layout.context_parallel; },
                                  [](StepQuestion& one) -> int& { return one.layout.pipeline_parallel; },
                                  [](StepQuestion& one) -> int& { return one.request.virtual_stages; },
                                  [](StepQuestion& one) -> int& { return one.micro_batch; }};
    for (const Number more : kTraded) {
      for (const Number less : kTraded) {
        if (more == less) continue;
        add([&](StepQuestion& one) {
          more(one) *= 2;
          less(one) = std::max(1, less(one) / 2);
        });
      }
    }
    for (const Again& again : WaysToComputeAgain(request_.model)) {
      add([&](StepQuestion& one) { Set(again, one.request); });
    }
    if (request_.model.moe_layers() == 0) return beside;
    scale(nullptr, &Layout::expert_parallel, nullptr);
    for (const Dispatcher dispatcher : kDispatchers) {
      add([&](StepQuestion& one) { SetDispatcher(dispatcher, one.request); });
    }
    for (const Overlap& overlap : kOverlaps) {
      for (const int stages : {at.request.virtual_stages, 2 * at.request.virtual_stages}) {
        for (const bool again : {true, false}) {
          add([&](StepQuestion& one) {
            SetOverlap(overlap.overlaps, overlap.delays, request_.model, one.request);
            one.request.virtual_stages = stages;
            if (!again) Set({}, one.request);
          });
        }
      }
    }
    return beside;
  }

  // Absent: it breaks a rule, has no price, or does not fit.
  std::optional<double> StepS(const StepQuestion& question) {
    const auto [known, fresh] = steps_.try_emplace(KeyOf(question));
    if (!fresh) return known->second;
    const StatusOr<BareStep> step = pricer_.Price(question, stop_);
    if (step.ok() && step->missing_bytes <= 0) known->second = step->step_s;
    return known->second;
  }

  bool Taken(const StepQuestion& question) {
    const std::optional<double> step_s = StepS(question);
    if (!step_s || (request_.takes && !request_.takes(question))) return false;
    taken_.emplace(*step_s, question);
    return true;
  }

  // The layout that departs least from what is usual, among those that take as long as the fastest.
  const StepQuestion& Best() const {
    const StepQuestion* best = nullptr;
    int least = 0;
    for (const auto& [step_s, question] : taken_) {
      if (step_s > taken_.begin()->first * (1 + kTie)) break;
      const int departures = DeparturesOf(question);
      if (best == nullptr || departures < least) best = &question, least = departures;
    }
    return *best;
  }

  Status NothingTaken() const {
    const bool any_fits = std::ranges::any_of(steps_, [](const auto& known) { return known.second.has_value(); });
    if (request_.live_only && any_fits) {
      return Infeasible(
          "the training system has no settings for the layout to change, whatever is computed again in it");
    }
    if (request_.live_only) {
      return Infeasible(StrCat("the layout to change is predicted to need more than ", 100 * kUsableMemory,
                               " % of a GPU's memory, whatever is computed again in it"));
    }
    return Infeasible(
        "no layout that fits is one that the training system takes; name another training system, another batch or "
        "more GPUs");
  }

  // ---- Round three: what it is compared with, and why.

  // With the schedule that its MoE layers have and where contexts lie, so that the question says all.
  StatusOr<AdvisedLayout> Whole(StepQuestion question) {
    AdvisedLayout whole;
    ASSIGN_OR_RETURN(whole.step, PriceLayout(question, profile_, stop_));
    question.layout = whole.step.layout.layout;
    question.horizontal_contexts = whole.step.layout.horizontal_contexts;
    if (request_.model.moe_layers() > 0 && !question.lancet) {
      const Knobs& moe = whole.step.layout.moe;
      question.schedule = moe.family;
      question.chunks = moe.chunks;
      question.partition_degree = moe.partition_degree;
    }
    whole.question = std::move(question);
    return whole;
  }

  Status SetMine() {
    advice_.mine_is_usual = !request_.mine;
    if (!request_.mine) {
      // Nothing usual may fit: then the answer is compared with itself.
      const StatusOr<StepQuestion> usual = Usual();
      ASSIGN_OR_RETURN(advice_.mine, Whole(usual.ok() ? *usual : advice_.best.question));
    }
    ASSIGN_OR_RETURN(advice_.gain, CompareLayouts(advice_.best.question, advice_.mine.question, profile_, stop_));
    return OkStatus();
  }

  Status SetRunnerUp() {
    for (const auto& [step_s, question] : taken_) {
      if (DecisionsBetween(advice_.best.question, question).empty()) continue;
      ASSIGN_OR_RETURN(advice_.runner_up, Whole(question));
      ASSIGN_OR_RETURN(advice_.runner_up_ratio,
                       CompareLayouts(advice_.best.question, advice_.runner_up->question, profile_, stop_));
      return OkStatus();
    }
    return OkStatus();
  }

  // Says what one decision gains over the layout without it.
  struct Worth {
    double ratio = 1;
    std::string text;
  };

  void SetReasons() {
    std::vector<Worth> worths;
    for (const Decision& decision : DecisionsOf(advice_.best.question, advice_.mine.question)) {
      if (std::optional<Worth> worth = WorthOf(decision)) worths.push_back(*std::move(worth));
    }
    std::ranges::stable_sort(worths, std::greater(), &Worth::ratio);
    for (const Worth& worth : worths) {
      if (advice_.reasons.size() < kMostReasons) advice_.reasons.push_back(worth.text);
    }
  }

  std::optional<Worth> WorthOf(const Decision& decision) {
    const StatusOr<StepRatio> ratio = CompareLayouts(advice_.best.question, decision.without, profile_, stop_);
    // The rest of the layout may need it.
    if (!ratio.ok()) return std::nullopt;
    if (ratio->other.missing_bytes > 0) {
      return Worth{kWorthOfFitting, StrCat(decision.taken, ": with ", decision.instead, " a GPU lacks ",
                                           BriefNumber(ratio->other.missing_bytes / 1e9), " GB")};
    }
    if (ratio->ratio < 1 + kSameTime) return std::nullopt;
    return Worth{ratio->ratio, StrCat(decision.taken, ": ", decision.instead, " takes ", RatioText(*ratio),
                                      WhereText(advice_.best.step, ratio->other))};
  }

  void SetMeasureNext() {
    const std::vector<StepError>& errors = advice_.best.step.errors;
    double all = 0;
    for (const StepError& error : errors) all += error.square;
    for (const StepError& error : errors) {
      if (advice_.measure_next.size() < kMostToMeasure) advice_.measure_next.push_back({error.key, error.square / all});
    }
  }

  const AdviceRequest& request_;
  const Profile& profile_;
  const Profile roomy_;  // Of GPUs whose memory is not filled to the last byte.
  const StopSignals stop_;
  LayoutPricer pricer_;
  std::map<std::string, std::optional<double>> steps_;  // Of whatever was looked at.
  std::multimap<double, StepQuestion> taken_;  // Whatever fits and the training system takes, the fastest first.
  LayoutAdvice advice_;
};

}  // namespace

StatusOr<StepQuestion> UsualLayout(const AdviceRequest& request, const Profile& profile) {
  return Adviser(request, profile, {}).Usual();
}

std::optional<StepQuestion> Completed(const AdviceRequest& request, const OpenSettings& open, const Profile& profile) {
  return Adviser(request, profile, {}).Complete(open);
}

StatusOr<LayoutAdvice> Advise(const AdviceRequest& request, const Profile& profile, std::stop_token cancelled) {
  return Adviser(request, profile, std::move(cancelled)).Run();
}

}  // namespace moeplan::planner
