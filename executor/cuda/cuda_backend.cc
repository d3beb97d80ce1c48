#include "executor/cuda/cuda_backend.h"

#include <cublasLt.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "executor/cuda/card_facts.h"
#include "executor/cuda/cuda_rank.h"
#include "executor/cuda/environment.h"
#include "executor/cuda/errors.h"
#include "executor/cuda/machine_errors.h"
#include "executor/cuda/share_bytes.h"
#include "executor/cuda/staged_exchange.h"
#include "executor/host/abort_line.h"
#include "executor/host/gloo_mesh.h"
#include "executor/host/host_rank.h"
#include "models/text.h"
#ifdef MOEPLAN_HAVE_NCCL
#include "executor/cuda/nccl_exchange.h"
#endif

namespace moeplan::executor::cuda {
namespace {

constexpr std::chrono::seconds kConnectTimeout{30};

std::string CublasVersion() {
  return StrCat("cuBLAS ", CUBLAS_VER_MAJOR, ".", CUBLAS_VER_MINOR, ".", CUBLAS_VER_PATCH);
}

StatusOr<int> CardOf(const RankPlace& place) {
  int cards = 0;
  const cudaError_t error = cudaGetDeviceCount(&cards);
  if (error != cudaSuccess || cards == 0) {
    cudaGetLastError();
    return error::NoCard(/*card=*/0, /*found=*/0, cudaGetErrorString(error));
  }
  int current = 0;
  if (place.takes_current_card) {
    RETURN_IF_ERROR(StatusOf(cudaGetDevice(&current), "the card of a thread"));
    return current;
  }
  return place.rank % place.ranks_per_node % cards;
}

// What tells a card from all others of the job.
StatusOr<std::string> NameOf(int card) {
  if (const auto facts = CardFacts(card); facts.contains("uuid")) return facts.at("uuid");
  std::array<char, 64> bus{};
  RETURN_IF_ERROR(StatusOf(cudaDeviceGetPCIBusId(bus.data(), bus.size(), card), "the card's bus"));
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return StrCat(host.data(), "/", bus.data());
}

// What a rank tells the others, as one word.
struct Addresses {
  std::string mesh, aborts, card;

  std::string Text() const { return StrCat(mesh, ",", aborts, ",", card); }
  static StatusOr<Addresses> Parse(const std::string& text) {
    const size_t first = text.find(','), second = text.find(',', first + 1);
    if (first == std::string::npos || second == std::string::npos)
      return InternalError("a rank sent addresses that cannot be read");
    return Addresses{.mesh = text.substr(0, first),
                     .aborts = text.substr(first + 1, second - first - 1),
                     .card = text.substr(second + 1)};
  }
};

class CudaJoin final : public RankJoin {
 public:
  CudaJoin(RankPlace place, int card) : place_(std::move(place)), card_(card) {}

  Status Open() {
    ASSIGN_OR_RETURN(mesh_, StartGlooJoin(place_.rank, place_.ranks, place_.host_address));
    ASSIGN_OR_RETURN(aborts_, AbortLine::Listen(place_.rank, place_.ranks, place_.host_address));
    ASSIGN_OR_RETURN(const std::string card, NameOf(card_));
    address_ = Addresses{mesh_->address(), aborts_->address(), card}.Text();
    return OkStatus();
  }

  const std::string& address() const override { return address_; }

  StatusOr<std::unique_ptr<Rank>> Connect(const std::vector<std::string>& addresses) override {
    std::vector<std::string> meshes, aborts, cards;
    for (const std::string& text : addresses) {
      ASSIGN_OR_RETURN(Addresses one, Addresses::Parse(text));
      meshes.push_back(std::move(one.mesh));
      aborts.push_back(std::move(one.aborts));
      cards.push_back(std::move(one.card));
    }
    ASSIGN_OR_RETURN(std::unique_ptr<Mesh> mesh, std::move(*mesh_).Connect(meshes));
    RETURN_IF_ERROR(aborts_->Connect(aborts, kConnectTimeout));
    std::ranges::sort(cards);
    const bool own_cards = std::ranges::adjacent_find(cards) == cards.end();
    ASSIGN_OR_RETURN(std::unique_ptr<CudaRank> rank, MakeCudaRank({.card = card_}, [&](CudaDevice& device) {
                       return MakeExchange(own_cards, std::move(mesh), device);
                     }));
    RETURN_IF_ERROR(rank->SettleClocks());  // What the driver says of an idle card says nothing of its measurements.
    std::map<std::string, std::string> facts = CardFacts(card_);
    facts["exchange"] = exchange_;
    rank->SetFacts(std::move(facts));
    return rank;
  }

 private:
  StatusOr<std::unique_ptr<PartExchange>> MakeExchange(bool own_cards, std::unique_ptr<Mesh> mesh, CudaDevice& device) {
#ifdef MOEPLAN_HAVE_NCCL
    if (own_cards) {
      exchange_ = NcclVersion();
      HostRank host(std::move(mesh), place_.deadline_s);
      return MakeNcclExchange(place_.rank, place_.ranks, ShareOver(host.world(), host.device()), device,
                              {.deadline_s = place_.deadline_s, .aborts = aborts_.get()});
    }
#else
    (void)own_cards;
#endif
    exchange_ = "Gloo through pinned memory";
    return MakeStagedExchange(std::move(mesh), device, {.deadline_s = place_.deadline_s, .meeting = nullptr});
  }

  const RankPlace place_;
  const int card_;
  std::unique_ptr<GlooJoin> mesh_;
  std::unique_ptr<AbortLine> aborts_;
  std::string address_, exchange_;
};

class CudaBackendOfProcesses final : public RankBackend {
 public:
  const char* name() const override { return "cuda"; }

  std::map<std::string, std::string> FactsAt(const RankPlace& place) const override {
    const StatusOr<int> card = CardOf(place);
    if (!card.ok()) return {};
    std::map<std::string, std::string> facts = CardFacts(*card);
    facts["gemm"] = CublasVersion();
    return facts;
  }

  double DeviceMemoryBytesAt(const RankPlace& place) const override {
    const StatusOr<int> card = CardOf(place);
    int cards = 0;
    size_t free = 0, total = 0;
    const bool known = card.ok() && cudaSetDevice(*card) == cudaSuccess &&
                       cudaMemGetInfo(&free, &total) == cudaSuccess && cudaGetDeviceCount(&cards) == cudaSuccess;
    if (!known) return 0;
    const int sharers = (place.ranks_per_node + cards - 1) / cards;
    return static_cast<double>(total) / sharers;
  }

  std::string LibraryDeviceAt(const RankPlace& place) const override {
    const StatusOr<int> card = CardOf(place);
    return card.ok() ? StrCat("cuda:", *card) : "cuda";
  }

  StatusOr<std::unique_ptr<RankJoin>> Join(const RankPlace& place) const override {
    ASSIGN_OR_RETURN(const int card, CardOf(place));
    auto join = std::make_unique<CudaJoin>(place, card);
    RETURN_IF_ERROR(join->Open());
    return join;
  }
};

}  // namespace

const RankBackend& CudaBackend() {
  PrepareEnvironment();
  static const CudaBackendOfProcesses backend;
  return backend;
}

}  // namespace moeplan::executor::cuda
