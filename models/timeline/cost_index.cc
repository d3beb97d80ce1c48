#include "models/timeline/cost_index.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

namespace moeplan {
namespace {

const CostModel* FindAny(const Profile& profile, const CostKey& key) {
  return std::visit([&](const auto& one) { return Find(profile, one); }, key);
}

const CostModel* FindAnyContended(const Profile& profile, const CostKey& key) {
  return std::visit([&](const auto& one) { return FindContended(profile, one); }, key);
}

// What may answer for a kernel, best first: a gradient's products are as large as the forward ones, and those of an own
// expert are those of the built-in one, but for what stands between them.
std::vector<CostKey> Alike(const CostKey& key) {
  std::vector<CostKey> alike = {key};
  const auto* kernel = std::get_if<KernelKey>(&key);
  if (kernel == nullptr || !IsExpertProduct(kernel->kernel)) return alike;
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

constexpr size_t kUsual = 8;  // Of a rule.

// Cheap rather than even: rules ask millions of times a second, and keys that share a hash are told apart.
size_t Mixed(uint64_t a, uint64_t b, uint64_t c) {
  return (a * 0x9E3779B97F4A7C15) ^ (b * 0xC2B2AE3D27D4EB4F) ^ (c * 0x165667B19E3779F9);
}

uint64_t Pair(int low, int high) { return static_cast<uint32_t>(low) | static_cast<uint64_t>(high) << 32; }

size_t HashOf(const CollectiveKey& key) {
  const int kind = static_cast<int>(key.collective) + 16 * static_cast<int>(key.algorithm);
  return Mixed(Pair(key.group.size, key.group.ranks_per_node), Pair(kind + 1024 * key.ctas, key.gather_group_size),
               Pair(static_cast<int>(key.contention) + 16 * key.bytes_per_element.value_or(0),
                    key.shards + (static_cast<int>(key.dispatcher) << 24) + (static_cast<int>(key.transport) << 28)));
}
size_t HashOf(const KernelKey& key) {
  return Mixed(Pair(static_cast<int>(key.kernel), key.model_dim.value_or(0)),
               Pair(static_cast<int>(key.contention) + 16 * key.ctas, key.hidden_dim.value_or(0)),
               key.bytes_per_element.value_or(0));
}
size_t HashOf(const CostKey& key) {
  return std::visit([](const auto& one) { return HashOf(one); }, key);
}

// The entry that was asked for before, or null.
template <typename Entry, typename IsAsked>
const Entry* Known(const std::vector<size_t>& hashes, const std::vector<Entry>& entries, size_t hash,
                   IsAsked is_asked) {
  for (auto at = std::ranges::find(hashes, hash); at != hashes.end(); at = std::find(at + 1, hashes.end(), hash)) {
    const Entry& entry = entries[at - hashes.begin()];
    if (is_asked(entry)) return &entry;
  }
  return nullptr;
}

// The key of the entry whose model this is.
template <typename Entries>
std::optional<CostKey> KeyOfModel(const Entries& entries, const CostModel* model) {
  for (const auto& entry : entries) {
    if (&entry.model == model) return entry.key;
  }
  return std::nullopt;
}

}  // namespace

bool CostIndex::has_contention() {
  if (!has_contention_) {
    const auto contended = [](const auto& model) { return model.key.contention != Contention::kNone; };
    has_contention_ =
        std::ranges::any_of(profile_.collectives, contended) || std::ranges::any_of(profile_.kernels, contended);
  }
  return *has_contention_;
}

std::optional<CostKey> CostIndex::EntryOf(const CostKey& asked) {
  const CostModel* const model = SourceOf(asked).model;
  if (model == nullptr) return std::nullopt;
  std::optional<CostKey> entry = KeyOfModel(profile_.collectives, model);
  return entry ? entry : KeyOfModel(profile_.kernels, model);
}

CostKey CostIndex::Answering(const CostKey& key) const {
  if (FindAny(profile_, key) != nullptr) return key;
  const std::vector<CostKey> alike = Alike(key);
  const auto found = std::ranges::find_if(alike, [&](const CostKey& one) { return FindAny(profile_, one) != nullptr; });
  return found == alike.end() ? alike.back() : *found;
}

void CostIndex::LookElsewhere(Source& source) const {
  const CostKey narrowest = Answering(source.asked);
  const auto* own = std::get_if<KernelKey>(&source.asked);
  source.stands_in = own != nullptr && narrowest != source.asked && BuiltInLike(own->kernel) != own->kernel;
  for (const CostKey& wider :
       {narrowest, WithContention(narrowest, ContentionOf(narrowest)), WithContention(narrowest, Contention::kNone)}) {
    if (source.model != nullptr) break;
    source.key = wider;
    source.model = FindAnyContended(profile_, source.key);
  }
}

const CostIndex::Source& CostIndex::SourceOf(const CostKey& asked) {
  const size_t hash = HashOf(asked);
  const auto is_asked = [&](const Source& source) { return source.asked == asked; };
  if (const Source* known = Known(source_hashes_, sources_, hash, is_asked)) return *known;
  Source source = {.asked = asked, .key = asked, .model = FindAnyContended(profile_, asked)};
  if (source.model == nullptr) LookElsewhere(source);
  source.bus_factor = BusFactorOf(source.key);
  if (sources_.empty()) {
    source_hashes_.reserve(kUsual);
    sources_.reserve(kUsual);
  }
  source_hashes_.push_back(hash);
  return sources_.emplace_back(std::move(source));
}

const CostIndex::Slowdown& CostIndex::SlowdownOf(const CostKey& asked, Contention contention, int ctas) {
  const size_t hash = Mixed(HashOf(asked), static_cast<int>(contention), ctas);
  const auto is_asked = [&](const Slowdown& known) {
    return known.contention == contention && known.ctas == ctas && known.asked == asked;
  };
  if (const Slowdown* known = Known(slowdown_hashes_, slowdowns_, hash, is_asked)) return *known;
  Slowdown slowdown = {.asked = asked, .contention = contention, .ctas = ctas};
  for (const CostKey& key : Kin(asked, contention, ctas)) {
    const CostModel* beside = FindAnyContended(profile_, key);
    if (beside == nullptr) continue;
    slowdown.key = key;
    slowdown.bus_factor = BusFactorOf(key);
    slowdown.alone = FindAnyContended(profile_, WithContention(key, Contention::kNone));
    if (slowdown.alone != nullptr) slowdown.beside = beside;
    break;
  }
  slowdown_hashes_.push_back(hash);
  return slowdowns_.emplace_back(std::move(slowdown));
}

}  // namespace moeplan
