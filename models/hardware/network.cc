#include "models/hardware/network.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "models/text.h"

namespace moeplan {
namespace {

// These bounds are as far beyond machines as those of a simulated cluster.
constexpr double kLeastRate = 1, kMostRate = 1e21, kMostRatio = 1e6;

// The function says how much `below_leaf` of a group's domains, all that lie below one leaf, send to other leaves. The
// unit is what one domain sends to the others of the group, times the others.
using SentUp = int64_t (*)(int64_t below_leaf, int64_t domains);

int64_t AllToAllSentUp(int64_t below_leaf, int64_t domains) { return below_leaf * (domains - below_leaf); }
int64_t RingSentUp(int64_t below_leaf, int64_t domains) { return below_leaf == domains ? 0 : domains - 1; }

// Adds what the group sends up whose first domain is `first`. Domains below the same leaf follow one another.
void AddGroup(const DomainSpan& group, int first, int nodes_per_leaf, SentUp sent_up, std::vector<int64_t>& of_leaves) {
  for (int place = 0; place < group.domains;) {
    const int leaf = (first + place * group.apart) / nodes_per_leaf, begin = place;
    while (place < group.domains && (first + place * group.apart) / nodes_per_leaf == leaf) ++place;
    of_leaves[leaf] += sent_up(place - begin, group.domains);
  }
}

std::vector<int64_t> NothingSentUp(const Network& network, int cluster_domains) {
  return std::vector<int64_t>((cluster_domains + network.nodes_per_leaf - 1) / network.nodes_per_leaf);
}

// `of_domain` is what a domain sends to others. A leaf that the cluster does not fill has as many uplinks as the
// others.
double OfBusiest(const std::vector<int64_t>& of_leaves, const Network& network, int64_t of_domain) {
  const auto busiest = static_cast<double>(*std::ranges::max_element(of_leaves));
  const auto full = static_cast<double>(network.nodes_per_leaf * of_domain);
  return std::max(1.0, busiest / full * network.oversubscription);
}

double Slowdown(const Network& network, int cluster_domains, const DomainSpan& group, SentUp sent_up) {
  if (!HasSlowUplinks(network, cluster_domains) || group.domains == 1) return 1;
  std::vector<int64_t> of_leaves = NothingSentUp(network, cluster_domains);
  const int block = group.domains * group.apart;
  for (int begin = 0; begin + block <= cluster_domains; begin += block) {
    for (int lane = 0; lane < group.apart; ++lane) {
      AddGroup(group, begin + lane, network.nodes_per_leaf, sent_up, of_leaves);
    }
  }
  return OfBusiest(of_leaves, network, group.domains - 1);
}

// All domains send to the one so far behind them, but for those of the last stage.
double PipelineSlowdown(const Network& network, int cluster_domains, int apart) {
  if (!HasSlowUplinks(network, cluster_domains)) return 1;
  std::vector<int64_t> of_leaves = NothingSentUp(network, cluster_domains);
  for (int domain = 0; domain + apart < cluster_domains; ++domain) {
    const int leaf = domain / network.nodes_per_leaf;
    if ((domain + apart) / network.nodes_per_leaf != leaf) ++of_leaves[leaf];
  }
  return OfBusiest(of_leaves, network, /*of_domain=*/1);
}

Status Within(std::string_view path, std::string_view field, double value, double least, double most) {
  if (least <= value && value <= most) return OkStatus();
  return InvalidInput(StrCat(path, path.empty() ? "" : ".", field, ": found ", value, ", expected a number from ",
                             least, " to ", most));
}

}  // namespace

Status ValidateNetwork(const Network& network, std::string_view path) {
  if (network.nodes_per_leaf < 0) {
    return InvalidInput(StrCat(path, path.empty() ? "" : ".", "nodesPerLeaf: found ", network.nodes_per_leaf,
                               ", expected a whole number of at least 1, or 0 for all"));
  }
  RETURN_IF_ERROR(Within(path, "oversubscription", network.oversubscription, 1, kMostRatio));
  if (network.oversubscription > 1 && network.nodes_per_leaf == 0) {
    return InvalidInput(StrCat(path, path.empty() ? "" : ".", "oversubscription: found ", network.oversubscription,
                               " without nodesPerLeaf, expected both: a switch that joins all domains has no uplinks"));
  }
  return Within(path, "bytesPerS", network.bytes_per_s.value_or(kLeastRate), kLeastRate, kMostRate);
}

bool HasSlowUplinks(const Network& network, int cluster_domains) {
  return network.nodes_per_leaf > 0 && network.nodes_per_leaf < cluster_domains && network.oversubscription > 1;
}

double AllToAllSlowdown(const Network& network, int cluster_domains, const DomainSpan& group) {
  if (group.domains == 2 && group.apart > 1) return PipelineSlowdown(network, cluster_domains, group.apart);
  return Slowdown(network, cluster_domains, group, AllToAllSentUp);
}

double RingSlowdown(const Network& network, int cluster_domains, const DomainSpan& group) {
  return Slowdown(network, cluster_domains, group, RingSentUp);
}

}  // namespace moeplan
