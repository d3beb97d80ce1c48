#include "models/timeline/pricer.h"

#include <algorithm>

#include "models/measurement/cost_key.h"
#include "models/text.h"

namespace moeplan {
namespace {

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

PricedTime Pricer::Price(const CostKey& asked, double size) {
  if (size <= 0 || OfOneRank(asked)) return {};
  const CostIndex::Source& source = SourceOf(asked);
  return source.model == nullptr ? PricedTime{} : PriceWith(*source.model, source.key, source.bus_factor, size);
}

double Pricer::LeastPriceS(const CostKey& asked, double low, double high) {
  if (low <= 0 || OfOneRank(asked)) return 0;
  const CostIndex::Source& source = SourceOf(asked);
  if (source.model == nullptr) return 0;
  const Curve& curve = source.model->curve;
  const double bus_factor = source.bus_factor;
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

const CostIndex::Source& Pricer::SourceOf(const CostKey& asked) {
  const CostIndex::Source& source = index().SourceOf(asked);
  if (source.stands_in) {
    notes_.remarks.insert(StrCat(Name(std::get<KernelKey>(asked).kernel), ": not in the profile; priced as ",
                                 Name(std::get<KernelKey>(source.key).kernel)));
  }
  if (source.model == nullptr) {
    (Dispensable(source.key) ? notes_.priced_zero : missing_).insert(Essential(source.key));
  }
  return source;
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

PricedTime Pricer::PriceWith(const CostModel& model, const CostKey& key, double bus_factor, double size) {
  PricedTime price = moeplan::Price(model, size, bus_factor);
  if (model.fit) NarrowToMedians(*model.fit, price);
  if (price.extrapolated) NoteExtrapolation(key, model, size);
  return price;
}

void Pricer::NoteExtrapolation(const CostKey& key, const CostModel& model, double size) {
  const Extrapolation one = {size, size, model.size_low, model.size_high};
  Widen(notes_.extrapolated.try_emplace(Essential(key), one).first->second, one);
}

Pricer::SlowdownRange Pricer::Slowdown(const CostKey& asked, Contention contention, double size, int ctas) {
  if (contention == Contention::kNone || size <= 0 || OfOneRank(asked)) return {};
  const CostIndex::Slowdown& known = index().SlowdownOf(asked, contention, ctas);
  if (known.beside == nullptr) return {};
  // Contended curves have few points, often one: drawn on beyond them, their times say little, while the slowdown at
  // the nearest size stays about what it was.
  const double at = std::clamp(size, known.beside->size_low, known.beside->size_high);
  const double alone_s = TimeS(known.alone->curve, at, known.bus_factor);
  if (alone_s <= 0) return {};
  PricedTime beside = moeplan::Price(*known.beside, at, known.bus_factor);
  if (known.beside->fit) NarrowToMedians(*known.beside->fit, beside);
  if (at != size) NoteExtrapolation(known.key, *known.beside, size);
  const auto ratio = [&](double time_s) { return std::max(1.0, time_s / alone_s); };
  return {.mid = ratio(beside.time_s), .low = ratio(beside.low_s), .high = ratio(beside.high_s)};
}

bool Pricer::Has(const CostKey& key) const {
  if (OfOneRank(key)) return true;
  const CostKey answering = index().Answering(key);
  return std::visit([&](const auto& one) { return Find(index().profile(), one) != nullptr; }, answering);
}

}  // namespace moeplan
