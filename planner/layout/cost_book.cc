#include "planner/layout/cost_book.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "models/cost/nearest_gemm.h"
#include "models/cost/send.h"
#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "planner/layout/precision.h"

namespace moeplan::planner {
namespace {

bool IsProduct(const KernelKey& key, int bytes_per_element) {
  return (IsExpertProduct(key.kernel) || IsLinear(key.kernel)) && key.contention == Contention::kNone &&
         BuiltInLike(key.kernel) == key.kernel &&
         key.bytes_per_element.value_or(bytes_per_element) == bytes_per_element;
}

// FP8 and what is narrower: samples tell only how many whole bytes an element takes.
constexpr int kLowBytes = 1;
// Without a figure of the hardware: half of what the peaks gain.
constexpr double kUsualSpeedup = 1.5, kAssumedErrorRatio = 1.3;

// The error that all kernels of the kind have together.
KernelKey CommonKey(Kernel kernel) { return {.kernel = IsLinear(kernel) ? Kernel::kLinear : Kernel::kAttention}; }
// And that products in less than BF16 have, measured or of an assumed speedup.
KernelKey LowKey() { return {.kernel = Kernel::kLinear, .bytes_per_element = kLowBytes}; }

// Links say nothing of an exchange that was never measured in its way: to fit them would be for nothing.
bool MayBePredicted(const Profile& profile, const CollectiveKey& key) {
  if (key.collective == Collective::kAllToAllAllGather) return false;
  return key.algorithm == AllToAllAlgorithm::kDirect ||
         std::ranges::any_of(profile.collectives, [&](const CollectiveModel& entry) {
           return entry.key.collective == key.collective && entry.key.algorithm == key.algorithm;
         });
}

// " with that transport, but with NVSHMEM" where the dispatcher was measured on the group with another; else empty.
std::string OtherTransport(const Profile& profile, CollectiveKey key) {
  for (const Transport transport : {Transport::kNccl, Transport::kNvshmem, Transport::kUccl}) {
    key.transport = transport;
    if (Find(profile, key) != nullptr) return StrCat(" with that transport, but with ", Name(transport));
  }
  return "";
}

}  // namespace

std::vector<ExpertProducts> ExpertProductsOf(const Layer& layer, const Layout& layout) {
  const double tokens = 1.0 * layer.batch * layer.sequence_length / layout.context_parallel;
  const int experts = layer.experts / layout.expert_parallel;
  std::vector<ExpertProducts> all;
  if (layer.expert_kind == ExpertKind::kFfn) {
    const KernelKey product = KeyOf(Kernel::kExpertGemm, layer, layout);
    all.push_back({.product = product,
                   .hidden_dim = *product.hidden_dim,
                   .rows = tokens * layer.top_k * std::max(layer.capacity_factor, 1.0),
                   .experts = experts,
                   .matrices = layer.expert_matrices,
                   .sorts = layout.expert_parallel > 1 && experts > 1});
  }
  if (layer.shared_hidden_dim > 0) {
    const KernelKey product = SharedExpertKey(Kernel::kExpertGemm, layer, layout);
    const bool told_apart = !all.empty() && all.front().hidden_dim + 1 == *product.hidden_dim;
    all.push_back({.product = product,
                   .hidden_dim = *product.hidden_dim - (told_apart ? 1 : 0),
                   .rows = tokens,
                   .matrices = layer.expert_matrices});
  }
  return all;
}

CostBook::CostBook(const Profile& profile, int model_dim, int bytes_per_element, const PriceRules& rules,
                   Precision precision)
    : profile_(profile),
      bytes_per_element_(bytes_per_element),
      surface_(profile, bytes_per_element, rules.surface),
      dispatch_(rules.dispatch),
      precision_(precision) {
  if (precision != Precision::kBf16) low_surface_.emplace(profile, kLowBytes, rules.surface);
  tells_strides_ =
      std::ranges::any_of(profile.collectives, [](const CollectiveModel& entry) { return entry.key.stride != 0; });
  const KernelKey any = {.kernel = Kernel::kExpertGemm, .bytes_per_element = bytes_per_element};
  KernelKey square = any;
  square.model_dim = square.hidden_dim = model_dim;
  product_.key = any;
  if (const KernelModel* nearest = NearestGemm(profile, square)) {
    product_.key = nearest->key;
    product_.model = nearest->model;
    if (nearest->key.model_dim || nearest->key.hidden_dim) {
      product_.stand_in = StrCat("products of dense layers: priced as ", Describe(CostKey(nearest->key)));
    }
  } else if (profile.cluster.peak_flops_per_s > 0 && !profile.roofline) {
    product_.model = MakeCostModel(AlphaBeta{0, 1 / profile.cluster.peak_flops_per_s});
    product_.stand_in = "EXPERT_GEMM: not in the profile; products are priced at cluster.peakFlopsPerS";
  }
  if (product_.model) least_per_flop_s_ = LeastPerUnitS(product_.model->curve, /*bus_factor=*/1);
  if (profile.roofline) {
    const double least_s = 1 / profile.roofline->flops_per_s;
    if (!product_.model) product_.model = MakeCostModel(AlphaBeta{profile.roofline->launch_s, least_s});
    least_per_flop_s_ = least_per_flop_s_ > 0 ? std::min(least_per_flop_s_, least_s) : least_s;
  }
  for (const KernelModel& entry : profile.kernels) {
    if (!IsProduct(entry.key, bytes_per_element)) continue;
    least_per_flop_s_ = std::min(least_per_flop_s_, LeastPerUnitS(entry.model.curve, /*bus_factor=*/1));
  }
  fastest_flops_per_s_ = least_per_flop_s_ > 0 ? 1 / least_per_flop_s_ : 0;
  if (!low_surface_) return;
  least_per_flop_s_ /= AssumedSpeedup();
  for (const KernelModel& entry : profile.kernels) {
    if (!IsProduct(entry.key, kLowBytes)) continue;
    least_per_flop_s_ = std::min(least_per_flop_s_, LeastPerUnitS(entry.model.curve, /*bus_factor=*/1));
  }
}

const CostBook::Entry& CostBook::Find(const CollectiveKey& key) {
  const auto [place, fresh] = collectives_.try_emplace(key);
  Entry& entry = place->second;
  if (!fresh) return entry;
  entry.key = Essential(key);
  if (const CostModel* model = moeplan::Find(profile_, key)) {
    entry.model = *model;
    // Groups of any stride may share one cost, which has one error.
    CollectiveKey of_any_stride = key;
    of_any_stride.stride = 0;
    if (moeplan::Find(profile_, of_any_stride) == model) entry.key = Essential(of_any_stride);
    return entry;
  }
  if (!MayBePredicted(profile_, key)) return entry;
  if (!links_) links_.emplace(profile_);
  if (auto prediction = links_->Predict(key)) {
    entry.stand_in = moeplan::Describe(*prediction);
    entry.model = std::move(prediction->model.model);
  }
  return entry;
}

double CostBook::TimeOf(const Entry& entry, double size, double bus_factor) {
  if (!entry.model) {
    missing_.insert(entry.key);
    return 0;
  }
  asked_.insert(entry.key);
  sources_.insert(entry.key);
  if (!entry.stand_in.empty()) notes_.remarks.insert(entry.stand_in);
  const PricedTime price = Price(*entry.model, size, bus_factor);
  if (price.extrapolated) {
    PriceNotes one;
    one.extrapolated[entry.key] = {size, size, entry.model->size_low, entry.model->size_high};
    notes_.Merge(one);
  }
  if (!lean_ || lean_->key != entry.key) return price.time_s;
  return lean_->end == End::kLow ? price.low_s : price.high_s;
}

void CostBook::Count(const CostKey& key, double size, int times) {
  if (counted_ != nullptr) (*counted_)[{Essential(key), size}] += times;
}

double CostBook::CollectiveS(Collective collective, const GroupShape& group, double bytes, int stride) {
  if (group.size == 1 || bytes <= 0) return 0;
  const Entry& entry = Find({.collective = collective,
                             .group = group,
                             .bytes_per_element = bytes_per_element_,
                             .stride = tells_strides_ ? stride : 0});
  Count(entry.key, bytes);
  extrapolated_ = extrapolated_ || !entry.stand_in.empty();
  return TimeOf(entry, bytes, BusFactor(collective, group.size));
}

double CostBook::SendS(const GroupShape& pair, double bytes, int stride) {
  return CollectiveS(Collective::kAllToAll, pair, SendAsAllToAllBytes(bytes), stride);
}

double CostBook::ProductS(double flops) { return flops <= 0 ? 0 : TimeOf(product_, flops, /*bus_factor=*/1); }

double CostBook::LinearS(Kernel product, const LinearWork& work) {
  if (work.rows <= 0) return 0;
  const bool is_low = precision_ != Precision::kBf16 && !work.keeps_precision;
  Count(
      KernelKey{.kernel = product, .bytes_per_element = is_low ? kLowBytes : bytes_per_element_, .shape = work.shape()},
      work.flops());
  if (is_low) return LowPrecisionS(product, work);
  const auto time_s = ShapedS(surface_, bytes_per_element_, product, work.shape(), work.flops());
  return time_s ? *time_s : ProductS(work.flops());
}

double CostBook::AssumedSpeedup() const {
  const double known = profile_.roofline ? SpeedupOf(*profile_.roofline, precision_) : 0;
  return known > 0 ? known : kUsualSpeedup;
}

double CostBook::LowPrecisionS(Kernel product, const LinearWork& work) {
  // The products after it read the same converted operands.
  const double converted = product == Kernel::kLinear
                               ? work.rows * work.in_features
                               : (product == Kernel::kLinearInputGradient ? work.rows * work.out_features : 0);
  const double convert_s = MovedS(Kernel::kActivation, ConvertedBytes(precision_) * converted, /*launches=*/1);
  asked_.insert(LowKey());
  double lent = 1;
  if (lean_ && lean_->key == CostKey(LowKey())) {
    lent = lean_->end == End::kLow ? 1 / low_error_ratio() : low_error_ratio();
  }
  if (const auto time_s = ShapedS(*low_surface_, kLowBytes, product, work.shape(), work.flops())) {
    return *time_s * lent + convert_s;
  }
  notes_.remarks.insert(StrCat("products in less than BF16: not measured; those of BF16 are assumed to be ",
                               AssumedSpeedup(), " times as fast, beside conversion"));
  const auto time_s = ShapedS(surface_, bytes_per_element_, product, work.shape(), work.flops());
  return (time_s ? *time_s : ProductS(work.flops())) * lent / AssumedSpeedup() + convert_s;
}

double CostBook::AttentionS(Kernel pass, const AttentionWork& work) {
  if (work.flops <= 0) return 0;
  Count(KernelKey{.kernel = pass, .bytes_per_element = bytes_per_element_, .shape = work.shape}, work.flops);
  if (const auto time_s = ShapedS(surface_, bytes_per_element_, pass, work.shape, work.flops)) return *time_s;
  return (pass == Kernel::kAttentionGradient ? 2 : 1) * ProductS(work.flops);
}

std::optional<double> CostBook::ShapedS(const ShapeSurface& surface, int bytes_per_element, Kernel kernel,
                                        const KernelShape& shape, double flops) {
  const auto [known, fresh] = shaped_.try_emplace({bytes_per_element, kernel, shape, flops});
  if (fresh) {
    const auto time = surface.Time(kernel, shape, flops);
    const bool has_roofline = profile_.roofline && bytes_per_element == bytes_per_element_;
    if (time && !(time->is_far && has_roofline)) {
      known->second = *time;
    } else if (has_roofline) {
      known->second = {.time_s = RooflineS(*profile_.roofline, kernel, shape, flops, bytes_per_element_),
                       .nearest = CommonKey(kernel),
                       .measured = true};
    } else {
      return (shaped_.erase(known), std::nullopt);
    }
  }
  const ShapedTime& time = known->second;
  const KernelKey key = {.kernel = kernel, .bytes_per_element = bytes_per_element, .shape = shape};
  // Products in less than BF16 that were measured err on their own.
  if (&surface == &surface_) asked_.insert(CommonKey(kernel));
  if (!time.measured) asked_.insert(key);
  sources_.insert(time.nearest);
  if (time.is_far) {
    const bool same = time.nearest.shape == shape;
    notes_.remarks.insert(
        StrCat(Describe(CostKey(key)),
               same ? ": not measured near the sizes that are asked for" : ": not measured near; priced from ",
               same ? "" : Describe(CostKey(time.nearest))));
  }
  return Lent(time, key);
}

double CostBook::common_error_ratio() const {
  return std::max(surface_.common_error_ratio(), profile_.roofline ? profile_.roofline->error_ratio : 1);
}

double CostBook::low_error_ratio() const {
  return low_surface_->Has(Kernel::kLinear) ? low_surface_->common_error_ratio() : kAssumedErrorRatio;
}

double CostBook::Lent(const ShapedTime& time, const KernelKey& key) const {
  if (!lean_) return time.time_s;
  double ratio = 1;
  if (lean_->key == CostKey(CommonKey(key.kernel))) ratio = common_error_ratio();
  if (lean_->key == CostKey(key)) ratio = time.own_error_ratio;
  return lean_->end == End::kLow ? time.time_s / ratio : time.time_s * ratio;
}

const CostBook::Entry& CostBook::Find(Kernel kernel) {
  const auto [place, fresh] = kernels_.try_emplace(kernel);
  Entry& entry = place->second;
  if (!fresh) return entry;
  const KernelKey key = {.kernel = kernel, .bytes_per_element = bytes_per_element_};
  entry.key = Essential(key);
  if (const CostModel* model = moeplan::Find(profile_, key)) entry.model = *model;
  return entry;
}

double CostBook::MovedS(Kernel kernel, double bytes, int launches) {
  if (bytes <= 0) return 0;
  const Entry& entry = Find(kernel);
  Count(entry.key, bytes / launches, launches);
  if (entry.model) return launches * TimeOf(entry, bytes / launches, /*bus_factor=*/1);
  const Entry& copies = Find(Kernel::kDeviceCopy);
  notes_.remarks.insert(
      StrCat("norms, rotary embedding, activations, residuals, embedding, loss and optimizer: those that the profile "
             "lacks are ",
             copies.model ? "priced as DEVICE_COPY" : "counted as nothing"));
  if (!copies.model) return 0;
  // A copy of n bytes reads and writes 2n.
  return launches * TimeOf(copies, bytes / 2 / launches, /*bus_factor=*/1);
}

double CostBook::SlowdownBesideExchange(Dispatcher dispatcher) {
  if (!measured_slowdown_) {
    const bool measured = std::ranges::any_of(profile_.kernels, [](const KernelModel& entry) {
      return entry.key.kernel == Kernel::kExpertGemm && entry.key.contention == Contention::kWithAllToAll;
    });
    Pricer pricer(profile_);
    const bool known =
        measured && product_.model && pricer.Has(product_.key) && std::isfinite(product_.model->size_high);
    measured_slowdown_ =
        known ? pricer.Slowdown(product_.key, Contention::kWithAllToAll, product_.model->size_high).mid : 0;
  }
  if (*measured_slowdown_ > 0) return *measured_slowdown_;
  if (!profile_.roofline) {
    notes_.remarks.insert(
        "compute beside exchanges of experts: how they slow it was not measured; taken as not at all");
    return 1;
  }
  const double taken = ProcessorsTaken(dispatch_, dispatcher), all = profile_.roofline->processors;
  notes_.remarks.insert(
      StrCat("compute beside exchanges of experts: assumed to lack ", taken, " of ", all, " processors"));
  return all > 2 * taken ? all / (all - taken) : 2;
}

double CostBook::HostS(double launches) {
  if (launches <= 0) return 0;
  const Entry& entry = Find(Kernel::kHostLaunch);
  if (!entry.model) return 0;
  // A few layers say what many take.
  const double most = std::min(launches, entry.model->size_high);
  return launches / most * TimeOf(entry, most, /*bus_factor=*/1);
}

// Products of any dimensions are those of the executor's own kernels (MeasurementsOfLayouts).
bool CostBook::HasDimensions(const KernelKey& product) const {
  return std::ranges::any_of(profile_.kernels, [&](const KernelModel& entry) {
    return entry.key.kernel == product.kernel && entry.key.contention == Contention::kNone &&
           entry.key.model_dim == product.model_dim && entry.key.hidden_dim == product.hidden_dim &&
           entry.key.bytes_per_element.value_or(bytes_per_element_) == bytes_per_element_;
  });
}

bool CostBook::HasLinearExperts(int experts) const {
  return std::ranges::any_of(profile_.kernels, [&](const KernelModel& entry) {
    return entry.key.kernel == Kernel::kLinear && (experts == 1 || entry.key.shape.experts > 1);
  });
}

void CostBook::AddExperts(const ExpertProducts& asked, Profile& profile) {
  const auto& [product, hidden_dim, rows, experts, matrices, sorts] = asked;
  if (HasDimensions(product) || rows <= 0) return;
  const bool has_any = moeplan::Find(profile_, product) != nullptr;
  if (has_any ? !HasLinearExperts(experts) : !surface_.Has(Kernel::kLinear) && !profile_.roofline) return;
  const double row_bytes = 1.0 * *product.model_dim * bytes_per_element_;
  LogLog forward, input_gradient, weight_gradient;
  for (double part = kLeastExpertPart; part <= kMostExpertPart; part *= 2) {
    const auto linears = ExpertLinears(*product.model_dim, hidden_dim, matrices, part * rows, experts);
    const MovedWork activation = ActivationWork(part * rows, hidden_dim, matrices, bytes_per_element_);
    double flops = 0, there_s = MovedS(activation.kernel, activation.forward_bytes, 1);
    double back_s = MovedS(activation.kernel, activation.backward_bytes, 1), weights_s = 0;
    // Rows arrive by rank; they are sorted by local expert, and back.
    const double sort_s = sorts ? 2 * MovedS(Kernel::kDeviceCopy, part * rows * row_bytes, 1) : 0;
    for (const LinearWork& linear : linears) {
      flops += linear.flops();
      there_s += LinearS(Kernel::kLinear, linear);
      back_s += LinearS(Kernel::kLinearInputGradient, linear);
      weights_s += LinearS(Kernel::kLinearWeightGradient, linear);
    }
    forward.points.push_back({flops, there_s + sort_s});
    input_gradient.points.push_back({flops, back_s + sort_s});
    weight_gradient.points.push_back({flops, weights_s});
  }
  const double low = precision_ == Precision::kBf16 ? 1 : low_error_ratio();
  const double ratio = std::exp(std::hypot(std::log(common_error_ratio()), std::log(low)));
  const auto add = [&](Kernel kernel, LogLog curve) {
    KernelKey key = product;
    key.kernel = kernel;
    CostModel model = MakeCostModel(std::move(curve));
    model.fit = FitQuality{.interval_low_ratio = 1 / ratio, .interval_high_ratio = ratio};
    profile.kernels.push_back({key, std::move(model)});
  };
  add(Kernel::kExpertGemm, std::move(forward));
  add(Kernel::kExpertInputGradient, std::move(input_gradient));
  add(Kernel::kExpertWeightGradient, std::move(weight_gradient));
}

std::optional<CostModel> CostBook::FromLinks(const Dispatching& dispatching, const GroupShape& experts) {
  const auto& [dispatcher, transport, routing, pair_rows] = dispatching;
  const auto curve_of = [&](Collective collective, const GroupShape& group, double bytes_ratio) {
    const Entry& entry = Find({.collective = collective, .group = group, .bytes_per_element = bytes_per_element_});
    if (!entry.stand_in.empty()) notes_.remarks.insert(entry.stand_in), extrapolated_ = true;
    return ScaledCurve{entry.model ? &*entry.model : nullptr, bytes_ratio, BusFactor(collective, group.size)};
  };
  if (dispatcher == Dispatcher::kAllGather) {
    const double gathered = Gathered(dispatching, experts);
    return JoinedModel(curve_of(Collective::kAllGather, experts, gathered),
                       curve_of(Collective::kReduceScatter, experts, gathered), Joined::kMean, {});
  }
  const ScaledCurve there = curve_of(Collective::kAllToAll, experts, OnceANode(routing, experts));
  const bool across = experts.size > experts.ranks_per_node;
  const GroupShape node = {experts.ranks_per_node, experts.ranks_per_node};
  const bool spreads = across && node.size > 1;
  return JoinedModel(there, spreads ? curve_of(Collective::kAllToAll, node, OnceARank(routing, experts)) : there,
                     Joined::kLonger, RateOf(dispatch_, dispatcher, transport, across));
}

void CostBook::Dispatch(const Dispatching& dispatching, const GroupShape& experts, Profile& profile) {
  const auto& [dispatcher, transport, routing, pair_rows] = dispatching;
  if (dispatcher == Dispatcher::kAllToAll || experts.size == 1) return;
  const CollectiveKey in_its_place = {.collective = Collective::kAllToAll, .group = experts};
  std::erase_if(profile.collectives, [&](const CollectiveModel& entry) {
    return entry.key.group == experts &&
           (entry.key.collective == Collective::kAllToAll || entry.key.collective == Collective::kAllToAllAllGather);
  });
  std::optional<CostModel> model = FromLinks(dispatching, experts);
  CollectiveKey own = in_its_place;
  own.dispatcher = dispatcher, own.transport = transport;
  CollectiveKey asked = own;
  asked.bytes_per_element = bytes_per_element_;
  if (const CostModel* measured = moeplan::Find(profile_, asked); measured && SendsOnceToANode(dispatcher)) {
    model = MeasuredModel({measured, OnceANode(routing, experts), BusFactor(own.collective, experts.size)}, model,
                          RateOf(dispatch_, dispatcher, transport, experts.size > experts.ranks_per_node));
  } else if (model && SendsOnceToANode(dispatcher)) {
    notes_.remarks.insert(StrCat(Describe(CostKey(own)), ": not measured", OtherTransport(profile_, own),
                                 "; priced as an all-to-all of the rows that it sends, once to a ",
                                 experts.size > experts.ranks_per_node ? "node" : "rank"));
  }
  if (model) profile.collectives.push_back({in_its_place, *std::move(model)});
}

Profile CostBook::ForLayer(const Layer& layer, const Layout& layout, const Dispatching& dispatching) {
  Profile profile = {.name = profile_.name, .version = profile_.version, .cluster = profile_.cluster};
  for (const KernelModel& entry : profile_.kernels) {
    if (entry.key.shape == KernelShape{}) profile.kernels.push_back(entry);
  }
  AddLinearExperts(layer, layout, profile);
  StandInFor(KeyOf(Kernel::kExpertGemm, layer, layout), "products of experts", profile);
  if (layer.shared_hidden_dim > 0) {
    StandInFor(SharedExpertKey(Kernel::kExpertGemm, layer, layout), "products of shared experts", profile);
  }
  std::set<GroupShape> shapes;
  for (const Group group : kGroups) shapes.insert(ShapeOf(group, layout, profile_.cluster.gpus_per_node));
  const GroupShape exchanged = ShapeOf(Group::kExpertShard, layout, profile_.cluster.gpus_per_node);
  for (const Team team : {Team::kNode, Team::kPlace}) shapes.insert(ShapeOf(team, exchanged));
  for (const CollectiveModel& entry : profile_.collectives) {
    if (shapes.contains(entry.key.group)) profile.collectives.push_back(entry);
  }
  // Relays alone exchange this way. Where nobody measured it, their schedule is left out rather than guessed.
  const auto of_relays = [&](const CollectiveKey& key) {
    const bool exchanges = key.collective == Collective::kAllToAll;
    const Group one = exchanges ? Group::kExpert : Group::kTensor;
    const Group other = exchanges ? Group::kExpertShard : Group::kShard;
    return key.group != ShapeOf(one, layout, profile_.cluster.gpus_per_node) &&
           key.group != ShapeOf(other, layout, profile_.cluster.gpus_per_node);
  };
  for (const CollectiveKey& key : LayerCollectives(layer, layout, profile_.cluster.gpus_per_node)) {
    if (moeplan::Find(profile, key) != nullptr) continue;
    const Entry& entry = Find(key);
    if (!entry.model || (of_relays(key) && !entry.stand_in.empty())) continue;
    profile.collectives.push_back({key, *entry.model});
    if (entry.stand_in.empty()) continue;
    notes_.remarks.insert(entry.stand_in);
    extrapolated_ = true;
  }
  Dispatch(dispatching, ShapeOf(Group::kExpert, layout, profile_.cluster.gpus_per_node), profile);
  return profile;
}

void CostBook::AddLinearExperts(const Layer& layer, const Layout& layout, Profile& profile) {
  for (const ExpertProducts& experts : ExpertProductsOf(layer, layout)) AddExperts(experts, profile);
}

void CostBook::StandInFor(const KernelKey& product, const char* what, Profile& profile) {
  if (moeplan::Find(profile, product) != nullptr) return;
  if (const KernelModel* nearest = NearestGemm(profile_, product)) {
    profile.kernels.push_back({product, nearest->model});
    notes_.remarks.insert(StrCat(what, ": priced as ", Describe(CostKey(nearest->key))));
  } else if (product_.model) {
    profile.kernels.push_back({product, *product_.model});
    if (!product_.stand_in.empty()) notes_.remarks.insert(product_.stand_in);
  }
}

void CostBook::Forget() {
  missing_.clear();
  extrapolated_ = false;
  notes_ = {};
  asked_.clear();
  sources_.clear();
}

}  // namespace moeplan::planner
