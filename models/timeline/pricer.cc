#include "models/timeline/pricer.h"

#include <algorithm>

#include "models/text.h"

namespace moeplan {
namespace {

const CostModel* FindAny(const Profile& profile, const CostKey& key) {
  return std::visit([&](const auto& one) { return Find(profile, one); }, key);
}

const CostModel* FindAnyContended(const Profile& profile, const CostKey& key) {
  return std::visit([&](const auto& one) { return FindContended(profile, one); }, key);
}

double BusFactorOf(const CostKey& key) {
  const auto* collective = std::get_if<CollectiveKey>(&key);
  return collective ? BusFactor(collective->collective, collective->group.size) : 1;
}

bool OfOneRank(const CostKey& key) {
  const auto* collective = std::get_if<CollectiveKey>(&key);
  return collective && collective->group.size == 1;
}

// Kernels beside the experts' GEMM are small: a plan without them is still worth having.
bool Dispensable(const CostKey& key) {
  const auto* kernel = std::get_if<KernelKey>(&key);
  return kernel && !CountsFlops(kernel->kernel);
}

void Widen(Extrapolation& into, const Extrapolation& from) {
  into.asked_low = std::min(into.asked_low, from.asked_low);
  into.asked_high = std::max(into.asked_high, from.asked_high);
}

std::string Asked(const Extrapolation& extrapolation) {
  const std::string low = BriefNumber(extrapolation.asked_low), high = BriefNumber(extrapolation.asked_high);
  return low == high ? low : StrCat(low, " to ", high);
}

}  // namespace

void PriceNotes::Merge(const PriceNotes& other) {
  for (const auto& [key, extrapolation] : other.extrapolated) {
    Widen(extrapolated.try_emplace(key, extrapolation).first->second, extrapolation);
  }
  priced_zero.insert(other.priced_zero.begin(), other.priced_zero.end());
  remarks.insert(other.remarks.begin(), other.remarks.end());
}

std::vector<std::string> PriceNotes::Warnings() const {
  std::vector<std::string> warnings(remarks.begin(), remarks.end());
  for (const CostKey& key : priced_zero) {
    warnings.push_back(StrCat(Describe(key), ": not in the profile; priced 0"));
  }
  for (const auto& [key, extrapolation] : extrapolated) {
    warnings.push_back(StrCat(Describe(key), ": asked at ", Asked(extrapolation), " ", UnitOf(key), ", measured ",
                              BriefNumber(extrapolation.measured_low), " to ", BriefNumber(extrapolation.measured_high),
                              "; extrapolated"));
  }
  return warnings;
}

namespace {

// What may answer for a kernel, best first: a gradient's products are as large as the forward ones, and those of an own
// expert are those of the built-in one, but for what stands between them.
std::vector<CostKey> Alike(const CostKey& key) {
  std::vector<CostKey> alike = {key};
  const auto* kernel = std::get_if<KernelKey>(&key);
  if (kernel == nullptr || !CountsFlops(kernel->kernel)) return alike;
  const Kernel product = BuiltInLike(kernel->kernel);
  for (const ExpertKind kind : {ExpertKindOf(kernel->kernel), ExpertKind::kFfn}) {
    for (const Kernel like : {product, Kernel::kExpertGemm}) {
      KernelKey other = *kernel;
      other.kernel = KernelOf(kind, like);
      alike.emplace_back(other);
    }
  }
  return alike;
}

}  // namespace

CostKey Pricer::Answering(const CostKey& key) const {
  if (FindAny(profile_, key) != nullptr) return key;
  const std::vector<CostKey> alike = Alike(key);
  const auto found = std::ranges::find_if(alike, [&](const CostKey& one) { return FindAny(profile_, one) != nullptr; });
  return found == alike.end() ? alike.back() : *found;
}

PricedTime Pricer::Price(const CostKey& asked, double size) {
  if (size <= 0 || OfOneRank(asked)) return {};
  const Source& source = SourceOf(asked);
  return source.model == nullptr ? PricedTime{} : PriceWith(*source.model, source.key, size);
}

double Pricer::LeastPriceS(const CostKey& asked, double low, double high) {
  if (low <= 0 || OfOneRank(asked)) return 0;
  const Source& source = SourceOf(asked);
  if (source.model == nullptr) return 0;
  const Curve& curve = source.model->curve;
  const double bus_factor = BusFactorOf(source.key);
  double least_s = std::min(TimeS(curve, low, bus_factor), TimeS(curve, high, bus_factor));
  std::visit(
      [&](const auto& form) {
        if constexpr (requires { form.points; }) {  // Between knots every form is monotone.
          for (const auto& point : form.points) {
            if (low < point.size && point.size < high) {
              least_s = std::min(least_s, TimeS(curve, point.size, bus_factor));
            }
          }
        }
      },
      curve);
  return least_s;
}

const Pricer::Source& Pricer::SourceOf(const CostKey& asked) {
  const auto known = std::ranges::find(sources_, asked, &Source::asked);
  if (known != sources_.end()) return *known;
  Source source = {.asked = asked, .key = Answering(asked)};
  if (const auto* own = std::get_if<KernelKey>(&asked);
      source.key != asked && BuiltInLike(own->kernel) != own->kernel) {
    notes_.remarks.insert(
        StrCat(Name(own->kernel), ": not in the profile; priced as ", Name(std::get<KernelKey>(source.key).kernel)));
  }
  const CostKey narrowest = source.key;
  for (const CostKey& wider :
       {narrowest, WithContention(narrowest, ContentionOf(narrowest)), WithContention(narrowest, Contention::kNone)}) {
    if (source.model != nullptr) break;
    source.key = wider;
    source.model = FindAnyContended(profile_, source.key);
  }
  if (source.model == nullptr) {
    (Dispensable(source.key) ? notes_.priced_zero : missing_).insert(Essential(source.key));
  }
  return sources_.emplace_back(std::move(source));
}

namespace {

// What is priced is held against medians of runs. Where it is known how far the model was off at medians that it had
// not seen (|predicted / measured - 1|, which wants three sizes), the spread of single measurements, which its
// intervals hold, plays no part.
void NarrowToMedians(const FitQuality& fit, PricedTime& price) {
  constexpr int kFewestPoints = 3;
  const double error = fit.relative_error_p95;
  if (error <= 0 || fit.points < kFewestPoints || price.extrapolated) return;
  price.low_s = std::max(price.low_s, price.time_s / (1 + error));
  if (error < 1) price.high_s = std::min(price.high_s, price.time_s / (1 - error));
}

}  // namespace

PricedTime Pricer::PriceWith(const CostModel& model, const CostKey& key, double size) {
  PricedTime price = moeplan::Price(model, size, BusFactorOf(key));
  if (model.fit) NarrowToMedians(*model.fit, price);
  if (price.extrapolated) {
    const Extrapolation one = {size, size, model.size_low, model.size_high};
    Widen(notes_.extrapolated.try_emplace(Essential(key), one).first->second, one);
  }
  return price;
}

namespace {

// Whose slowdown tells that of `asked`, best first.
std::vector<CostKey> Kin(const CostKey& asked, Contention contention, int ctas) {
  std::vector<CostKey> alike = Alike(asked);
  if (const auto* collective = std::get_if<CollectiveKey>(&asked)) {
    CollectiveKey direct = *collective;
    direct.algorithm = AllToAllAlgorithm::kDirect;
    alike.emplace_back(direct);
  }
  std::vector<CostKey> kin;
  for (const CostKey& one : alike) kin.push_back(WithContention(one, contention, ctas));
  if (ctas == 0) return kin;
  for (const CostKey& one : alike) kin.push_back(WithContention(WithoutCtas(one), contention));
  return kin;
}

}  // namespace

Pricer::SlowdownRange Pricer::Slowdown(const CostKey& asked, Contention contention, double size, int ctas) {
  if (contention == Contention::kNone || size <= 0 || OfOneRank(asked)) return {};
  const std::vector<CostKey> kin = Kin(asked, contention, ctas);
  const auto known = std::ranges::find_if(kin, [&](const CostKey& key) { return FindAnyContended(profile_, key); });
  if (known == kin.end()) return {};
  const CostModel* contended = FindAnyContended(profile_, *known);
  const CostModel* alone = FindAnyContended(profile_, WithContention(*known, Contention::kNone));
  if (alone == nullptr) return {};
  const double alone_s = TimeS(alone->curve, size, BusFactorOf(*known));
  if (alone_s <= 0) return {};
  const PricedTime beside = PriceWith(*contended, *known, size);
  const auto ratio = [&](double time_s) { return std::max(1.0, time_s / alone_s); };
  return {.mid = ratio(beside.time_s), .low = ratio(beside.low_s), .high = ratio(beside.high_s)};
}

bool Pricer::Has(const CostKey& key) const { return OfOneRank(key) || FindAny(profile_, Answering(key)) != nullptr; }

}  // namespace moeplan
