#include "executor/all_to_all/phased_all_to_all.h"

#include <algorithm>

#include "models/all_to_all/algorithm.h"
#include "models/check.h"
#include "models/text.h"

namespace moeplan::executor {
namespace {

// Counts where lists of transfers are made: on the host, which may have to copy them.
class CountsOnHost {
 public:
  // `counts` of `ranks` ranks in the memory of `device`, as many for each as `cells` has.
  void Place(const void* counts, const CellLayout& cells, int ranks, const Device& device) {
    counts_ = static_cast<const int32_t*>(counts);
    if (!device.host_reads_memory()) copy_.resize(CountsOf(cells) * ranks);
  }

  void Copy(Device& device, Stream& stream) {
    if (copy_.empty()) return;
    device.Copy(reinterpret_cast<std::byte*>(copy_.data()), reinterpret_cast<const std::byte*>(counts_),
                copy_.size() * sizeof(int32_t), stream);
  }

  // `cells` with the counts of a rank. Requires that the stream has copied.
  CellLayout At(int rank, CellLayout cells) const {
    cells.counts = (copy_.empty() ? counts_ : copy_.data()) + rank * CountsOf(cells);
    return cells;
  }

 private:
  const int32_t* counts_ = nullptr;
  std::vector<int32_t> copy_;
};

// The counts of one buffer on every rank of a team.
class TeamCounts {
 public:
  Status Allocate(const PeerRows& rows, int ranks, Device& device) {
    ASSIGN_OR_RETURN(memory_, device.Allocate(CountsOf(rows.cells) * sizeof(int32_t) * ranks));
    on_host_.Place(memory_.data(), rows.cells, ranks, device);
    return OkStatus();
  }

  void Gather(const PeerRows& rows, Communicator& team, Device& device, Stream& stream) {
    if (memory_.bytes() == 0) return;
    team.AllGather(std::as_bytes(std::span(rows.cells.counts, CountsOf(rows.cells))), {memory_.data(), memory_.bytes()},
                   stream);
    on_host_.Copy(device, stream);
  }

  // `own`, as a rank of the team has it. Requires that the stream has gathered.
  CellLayout At(int rank, const CellLayout& own) const { return on_host_.At(rank, own); }

 private:
  DeviceMemory memory_;
  CountsOnHost on_host_;
};

class Runner final : public PhasedAllToAll {
 public:
  Runner(const PhasedExchange& what, Device& device, AllToAllTeams& teams, Stream& inside_nodes)
      : what_(what),
        definition_(DefinitionOf(what.algorithm)),
        phases_(definition_.phases(what.group)),
        device_(device),
        teams_(teams),
        inside_nodes_(inside_nodes) {
    MOEPLAN_CHECK(what.recv.cells.blocks == what.group.size && what.group.size % what.send.cells.blocks == 0);
    exchange_ = {.group = what.group,
                 .rank = what.rank,
                 .dump = what.group.size / what.send.cells.blocks,
                 .bytes = [this](int from, int to) { return BlockBytes(from, to); }};
  }

  Status Allocate() {
    if (phases_.empty()) {
      return InvalidInput(StrCat("allToAll: ", Name(what_.algorithm), ": found no phase, expected at least one"));
    }
    for (auto [cells, own] : {std::pair(&what_.send.cells, &own_sends_), {&what_.recv.cells, &own_receives_}}) {
      if (cells->counts != nullptr) own->Place(cells->counts, *cells, /*ranks=*/1, device_);
    }
    const auto same_team = [&](Team team) { return team == phases_.front(); };
    if (definition_.first_beside_others && std::any_of(phases_.begin() + 1, phases_.end(), same_team)) {
      return InvalidInput(StrCat("allToAll: ", Name(what_.algorithm),
                                 ": found a first phase of the same team as a later ",
                                 "one, expected a team of its own, as they run at the same time"));
    }
    const KnownBlocks known = irregular() ? definition_.known_blocks : KnownBlocks::kOwn;
    const int per_node = what_.group.ranks_per_node;
    if (known == KnownBlocks::kSentByNode || known == KnownBlocks::kSentOrGotByNode)
      RETURN_IF_ERROR(node_sends_.Allocate(what_.send, per_node, device_));
    if (known == KnownBlocks::kSentOrGotByNode) RETURN_IF_ERROR(node_receives_.Allocate(what_.recv, per_node, device_));
    if (known == KnownBlocks::kAll) RETURN_IF_ERROR(all_sends_.Allocate(what_.send, what_.group.size, device_));
    lists_.resize(phases_.size());
    transfers_.resize(phases_.size());
    for (size_t phase = 0; !irregular() && phase < phases_.size(); ++phase) {
      RETURN_IF_ERROR(ListTransfers(static_cast<int>(phase), transfers_[phase]));
    }
    return OkStatus();
  }

  void Enqueue(const std::string& task, Stream& stream) override {
    own_sends_.Copy(device_, stream);
    own_receives_.Copy(device_, stream);
    node_sends_.Gather(what_.send, teams_[Team::kNode], device_, stream);
    node_receives_.Gather(what_.recv, teams_[Team::kNode], device_, stream);
    all_sends_.Gather(what_.send, teams_[Team::kGroup], device_, stream);
    const bool beside = definition_.first_beside_others;
    if (beside) QueueInside(task, stream);
    for (size_t phase = beside ? 1 : 0; phase < phases_.size(); ++phase) Queue(static_cast<int>(phase), stream);
    if (beside) device_.Wait(stream, *inside_done_);
  }

 private:
  bool irregular() const { return what_.send.cells.counts != nullptr || what_.recv.cells.counts != nullptr; }

  void QueueInside(const std::string& task, Stream& stream) {
    device_.Record(*begun_, stream);
    device_.Wait(inside_nodes_, *begun_);
    device_.Label(inside_nodes_, StrCat(task, kInsideNodes));
    Queue(/*phase=*/0, inside_nodes_);
    device_.Record(*inside_done_, inside_nodes_);
  }

  void Queue(int phase, Stream& stream) {
    if (!TakesPart(what_.algorithm, phase, what_.group, what_.rank)) return;
    Communicator& team = teams_[phases_[phase]];
    if (irregular()) {
      return team.SendRecv([this, phase](Transfers& now) { MOEPLAN_CHECK(ListTransfers(phase, now).ok()); }, stream);
    }
    team.SendRecv(transfers_[phase].sends, transfers_[phase].recvs, stream);
  }

  Status ListTransfers(int phase, Transfers& transfers) {
    PhaseList& list = lists_[phase];
    ListPhase(what_.algorithm, exchange_, phase, list);
    const Team team = phases_[phase];
    for (const Message& message : list.sends()) transfers.sends.push_back(TransferOf(message, team));
    for (const Message& message : list.receives()) transfers.recvs.push_back(TransferOf(message, team));
    return Check(list, phase);
  }

  // Own algorithms may err.
  Status Check(const PhaseList& list, int phase) const {
    const auto wrong = [&](std::string_view what) {
      return InvalidInput(StrCat("allToAll: ", Name(what_.algorithm), ", phase ", phase, ": found ", what,
                                 ", expected what models/all_to_all/algorithm.h allows"));
    };
    for (const std::vector<Message>* messages : {&list.sends(), &list.receives()}) {
      for (const Message& message : *messages) {
        if (!InTeam(phases_[phase], message.peer)) return wrong("a message to a rank of another team");
        const bool scratch = message.place == Place::kScratch;  // Own blocks lie where PhaseList has found them.
        if (scratch && message.offset + message.bytes > what_.scratch.size())
          return wrong("a message beyond the scratch");
      }
    }
    // What goes to oneself is received from oneself, in order.
    auto receive = list.receives().begin();
    const auto to_self = [this](const Message& message) { return message.peer == what_.rank; };
    for (const Message& send : list.sends()) {
      if (!to_self(send)) continue;
      receive = std::find_if(receive, list.receives().end(), to_self);
      if (receive == list.receives().end() || receive->bytes != send.bytes)
        return wrong("a message to oneself in vain");
      ++receive;
    }
    if (std::any_of(receive, list.receives().end(), to_self)) return wrong("a wait for oneself in vain");
    return OkStatus();
  }

  bool InTeam(Team team, int peer) const {
    if (peer < 0 || peer >= what_.group.size) return false;
    const int per_node = what_.group.ranks_per_node;
    switch (team) {
      case Team::kNode: return peer / per_node == what_.rank / per_node;
      case Team::kPlace: return peer % per_node == what_.rank % per_node;
      case Team::kGroup: break;
    }
    return true;
  }

  Transfer TransferOf(const Message& message, Team team) const {
    return {PeerIn(team, message.peer), {DataOf(message.place) + message.offset, message.bytes}};
  }

  int PeerIn(Team team, int rank) const {
    switch (team) {
      case Team::kNode: return rank % what_.group.ranks_per_node;
      case Team::kPlace: return rank / what_.group.ranks_per_node;
      case Team::kGroup: break;
    }
    return rank;
  }

  std::byte* DataOf(Place place) const {
    switch (place) {
      case Place::kSend: return what_.send.data;
      case Place::kReceive: return what_.recv.data;
      case Place::kScratch: break;
    }
    return what_.scratch.data();
  }

  // What the own counts say, else those that the node has gathered.
  size_t BlockBytes(int from, int to) const {
    if (from == what_.rank) return BytesSent(OnHost(own_sends_, what_.send.cells), to);
    if (to == what_.rank) return BytesReceived(OnHost(own_receives_, what_.recv.cells), from);
    const int per_node = what_.group.ranks_per_node;
    if (irregular() && definition_.known_blocks == KnownBlocks::kAll) {
      return BytesSent(all_sends_.At(from, what_.send.cells), to);
    }
    const bool leaves = from / per_node == what_.rank / per_node;
    if (!irregular()) return leaves ? BytesSent(what_.send.cells, to) : BytesReceived(what_.recv.cells, from);
    MOEPLAN_CHECK(definition_.known_blocks != KnownBlocks::kOwn);
    return leaves ? BytesSent(node_sends_.At(from % per_node, what_.send.cells), to)
                  : BytesReceived(node_receives_.At(to % per_node, what_.recv.cells), from);
  }

  static CellLayout OnHost(const CountsOnHost& own, const CellLayout& cells) {
    return cells.counts == nullptr ? cells : own.At(/*rank=*/0, cells);
  }

  size_t BytesSent(const CellLayout& cells, int to) const {
    return RowsOfBlock(cells, to / exchange_.dump) * what_.send.row_bytes;
  }
  size_t BytesReceived(const CellLayout& cells, int from) const {
    return RowsOfBlock(cells, from) * what_.recv.row_bytes;
  }

  const PhasedExchange what_;
  const AllToAllDefinition& definition_;
  const std::vector<Team> phases_;
  Exchange exchange_;
  Device& device_;
  AllToAllTeams& teams_;
  Stream& inside_nodes_;
  CountsOnHost own_sends_, own_receives_;
  TeamCounts node_sends_, node_receives_, all_sends_;
  // By phase, as the first may run beside the others.
  std::vector<PhaseList> lists_;
  std::vector<Transfers> transfers_;  // Of regular rows.
  const std::unique_ptr<Event> begun_ = device_.MakeEvent(), inside_done_ = device_.MakeEvent();
};

}  // namespace

StatusOr<AllToAllTeams> AllToAllTeams::Make(Communicator& group, const GroupShape& shape, int rank) {
  AllToAllTeams teams;
  teams.group_ = &group;
  ASSIGN_OR_RETURN(teams.node_, group.Split(rank / shape.ranks_per_node));
  ASSIGN_OR_RETURN(teams.place_, group.Split(rank % shape.ranks_per_node));
  return teams;
}

Communicator& AllToAllTeams::operator[](Team team) {
  switch (team) {
    case Team::kNode: return *node_;
    case Team::kPlace: return *place_;
    case Team::kGroup: break;
  }
  return *group_;
}

StatusOr<std::unique_ptr<PhasedAllToAll>> PhasedAllToAll::Prepare(const PhasedExchange& exchange, Device& device,
                                                                  AllToAllTeams& teams, Stream& inside_nodes) {
  auto runner = std::make_unique<Runner>(exchange, device, teams, inside_nodes);
  RETURN_IF_ERROR(runner->Allocate());
  return runner;
}

}  // namespace moeplan::executor
