#include "executor/virtual/virtual_communicator.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "executor/errors.h"
#include "executor/host/parts.h"
#include "executor/virtual/errors.h"
#include "models/check.h"

namespace moeplan::executor {
namespace {

class Group;

constexpr char kUnsplitGroup[] = "a group that not every rank has split for";

// What one member brings to a group operation.
struct Parts {
  std::vector<Part> sends, receives;
  std::vector<BytesTo> beside;  // See GroupWork.
};

struct Operation {
  using Kind = GroupOperation;
  Kind kind;
  // Of the member at `rank` of a group of `size`; asked once, when its stream gets there.
  std::function<Parts(int rank, int size)> parts;
  ElementType type = ElementType::kFloat32;
  double share = 1;  // See GroupWork.
};

std::string_view Name(Operation::Kind kind) {
  switch (kind) {
    case Operation::Kind::kAllToAll: return "all-to-all";
    case Operation::Kind::kAllGather: return "all-gather";
    case Operation::Kind::kReduceScatter: return "reduce-scatter";
    case Operation::Kind::kAllReduce: return "all-reduce";
    case Operation::Kind::kSendRecv: return "send/recv";
    case Operation::Kind::kAllToAllAllGather: return "all-to-all with all-gather";
    case Operation::Kind::kAllGatherEnd: return "end of all-to-all with all-gather";
    case Operation::Kind::kBarrier: return "barrier";
  }
  return "?";
}

// A rank's place in a group.
struct Member {
  VirtualDevice& device;
  Group* group = nullptr;  // Null until every rank of the parent has split.
  int rank = 0;            // Within the group.
  struct Split {
    int color;
    Member* child;
  };
  std::vector<Split> splits;  // In order of the calls.
  Status aborted;             // While there is no group.
};

class GroupStep;

void AbortMember(Member& member, const Status& why);

// Members that work together. An operation starts when the last member has arrived and ends for all at once.
class Group {
 public:
  Group(VirtualMachine& machine, std::vector<Member*> members)
      : machine_(machine), members_(std::move(members)), arrived_(members_.size()) {
    for (size_t i = 0; i < members_.size(); ++i) {
      members_[i]->group = this;
      members_[i]->rank = static_cast<int>(i);
    }
  }

  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<Member*>& members() const { return members_; }

  void Arrive(GroupStep& step);
  // `member` has failed; so do the operation under way and all later ones.
  void Lose(const Member& member);
  // The operation under way and all later ones fail with `why`; so in groups split from this one.
  void Abort(const Status& why);
  // "rank 1 and rank 2".
  std::string NameMissing() const;

 private:
  struct Break {
    const Member* lost = nullptr;  // Null: aborted.
    Status why;
  };

  void BreakWith(Break how);
  void FailArrived();
  Status WhyBroken(const GroupStep& step) const;
  Status CheckSameOperation() const;
  void Begin();
  void End();
  Status Move();
  Status Deliver();
  Status DeliverFrom(int from, std::vector<size_t>& next);
  Status CheckSumSizes() const;
  // Whether sums have terms that are worth adding.
  bool HaveData() const;
  void ReduceScatter();
  void AllReduce();

  VirtualMachine& machine_;
  const std::vector<Member*> members_;
  std::vector<GroupStep*> arrived_;  // By rank; null: not yet.
  uint64_t round_ = 0;               // Counts operations that ended or failed.
  std::optional<Break> broken_;
};

// A member's turn in an operation of its group.
class GroupStep final : public VirtualStep {
 public:
  GroupStep(Member& member, StepQueue& queue, QueuedTask task, Operation operation)
      : member_(member), queue_(queue), task_(std::move(task)), operation_(std::move(operation)) {}

  bool Pass() override {
    if (done_) return true;
    if (device().failed()) return GiveUp();
    if (!arrived_ && member_.group != nullptr) {
      arrived_ = true;
      member_.group->Arrive(*this);
    }
    return false;
  }

  std::string WaitsFor() const override {
    return StrCat(Name(operation_.kind), " with ",
                  member_.group == nullptr ? kUnsplitGroup : member_.group->NameMissing());
  }

  void ReadParts() {
    parts_ = operation_.parts(member_.rank, member_.group->size());
    std::ranges::stable_sort(parts_.sends, {}, &Part::peer);
    std::ranges::stable_sort(parts_.receives, {}, &Part::peer);
  }

  void Finish() {
    done_ = true;
    queue_.Wake();
  }

  VirtualDevice& device() const { return queue_.device(); }
  const Member& member() const { return member_; }
  const Operation& operation() const { return operation_; }
  const Parts& parts() const { return parts_; }
  const QueuedTask& task() const { return task_; }
  double SentBytes() const {
    return std::accumulate(parts_.sends.begin(), parts_.sends.end(), 0.0,
                           [](double sum, const Part& part) { return sum + static_cast<double>(part.bytes.size()); });
  }

 private:
  bool GiveUp() {
    done_ = true;
    if (member_.group != nullptr) member_.group->Lose(member_);
    return true;
  }

  Member& member_;
  StepQueue& queue_;
  const QueuedTask task_;
  const Operation operation_;
  Parts parts_;
  bool arrived_ = false, done_ = false;
};

void Group::Arrive(GroupStep& step) {
  GroupStep*& place = arrived_[step.member().rank];
  if (broken_) return step.device().Fail(WhyBroken(step));
  if (place != nullptr) return step.device().Fail(error::TwoStreamsAtOnce(step.task().name));
  place = &step;
  step.ReadParts();
  if (std::ranges::find(arrived_, nullptr) == arrived_.end()) Begin();
}

void Group::Lose(const Member& member) { BreakWith({&member, member.device.failure()}); }

void Group::Abort(const Status& why) {
  BreakWith({nullptr, why});
  for (const Member* member : members_) {
    for (const auto& [color, child] : member->splits) {
      AbortMember(*child, why);
    }
  }
}

void AbortMember(Member& member, const Status& why) {
  if (member.group != nullptr) return member.group->Abort(why);
  if (member.aborted.ok()) member.aborted = why;
}

void Group::BreakWith(Break how) {
  if (broken_) return;
  broken_ = std::move(how);
  FailArrived();
}

void Group::FailArrived() {
  ++round_;
  for (GroupStep*& step : arrived_) {
    if (step != nullptr) step->device().Fail(WhyBroken(*step));
    step = nullptr;
  }
}

Status Group::WhyBroken(const GroupStep& step) const {
  if (broken_->lost == nullptr) return broken_->why.Within(StrCat("task ", step.task().name));
  return error::LostPeer(broken_->lost->device.rank(), step.task().name, step.SentBytes(), broken_->why.message());
}

std::string Group::NameMissing() const {
  std::string missing;
  for (int rank = 0; rank < size(); ++rank) {
    if (arrived_[rank] == nullptr) {
      missing += StrCat(missing.empty() ? "" : " and ", "rank ", members_[rank]->device.rank());
    }
  }
  return missing;
}

Status Group::CheckSameOperation() const {
  const auto describe = [](const GroupStep& step) {
    return StrCat("rank ", step.device().rank(), ", task ", step.task().name, ": ", Name(step.operation().kind));
  };
  for (const GroupStep* step : arrived_) {
    if (step->operation().kind != arrived_[0]->operation().kind) {
      return error::DifferentOperations(describe(*arrived_[0]), describe(*step));
    }
  }
  return OkStatus();
}

void Group::Begin() {
  if (const Status same = CheckSameOperation(); !same.ok()) return BreakWith({nullptr, same});
  GroupWork work = {.operation = arrived_[0]->operation().kind, .share = arrived_[0]->operation().share};
  for (const GroupStep* step : arrived_) {
    work.members.push_back({.rank = step->device().rank(),
                            .task = &step->task(),
                            .sends = step->parts().sends,
                            .beside = step->parts().beside});
  }
  machine_.Operate(work, [this, round = round_] {
    if (round == round_) End();
  });
}

void Group::End() {
  if (const Status moved = Move(); !moved.ok()) return BreakWith({nullptr, moved});
  ++round_;
  for (GroupStep*& step : arrived_) std::exchange(step, nullptr)->Finish();
}

Status Group::Move() {
  switch (arrived_[0]->operation().kind) {
    case Operation::Kind::kReduceScatter:
      RETURN_IF_ERROR(CheckSumSizes());
      if (HaveData()) ReduceScatter();
      return OkStatus();
    case Operation::Kind::kAllReduce:
      RETURN_IF_ERROR(CheckSumSizes());
      if (HaveData()) AllReduce();
      return OkStatus();
    default: return Deliver();
  }
}

// Both sides list their parts by peer, and those for the same peer in the order in which they match.
Status Group::Deliver() {
  std::vector<size_t> next(size(), 0);  // Of each rank: the first of its receives that is not filled.
  for (int from = 0; from < size(); ++from) RETURN_IF_ERROR(DeliverFrom(from, next));
  for (int to = 0; to < size(); ++to) {
    const auto& receives = arrived_[to]->parts().receives;
    if (next[to] == receives.size()) continue;
    return error::UnmatchedTransfer(members_[receives[next[to]].peer]->device.rank(), members_[to]->device.rank(),
                                    arrived_[to]->task().name);
  }
  return OkStatus();
}

Status Group::DeliverFrom(int from, std::vector<size_t>& next) {
  const int sender = members_[from]->device.rank();
  for (const Part& send : arrived_[from]->parts().sends) {
    const int receiver = members_[send.peer]->device.rank();
    const auto& receives = arrived_[send.peer]->parts().receives;
    size_t& at = next[send.peer];
    if (at == receives.size() || receives[at].peer != from) {
      return error::UnmatchedTransfer(sender, receiver, arrived_[from]->task().name);
    }
    const std::span<std::byte> to = receives[at++].bytes;
    if (to.size() != send.bytes.size()) return error::DifferentSizes(sender, send.bytes.size(), receiver, to.size());
    if (to.empty() || !machine_.HoldsData(send.bytes.data())) continue;
    machine_.SetHoldsData(to.data());
    std::memmove(to.data(), send.bytes.data(), to.size());  // In place, both are the same.
  }
  return OkStatus();
}

Status Group::CheckSumSizes() const {
  const auto bytes_of = [](const GroupStep& step) { return static_cast<size_t>(step.SentBytes()); };
  for (const GroupStep* step : arrived_) {
    if (bytes_of(*step) != bytes_of(*arrived_[0])) {
      return error::DifferentSizes(step->device().rank(), bytes_of(*step), arrived_[0]->device().rank(),
                                   bytes_of(*arrived_[0]));
    }
  }
  return OkStatus();
}

bool Group::HaveData() const { return machine_.HoldsData(arrived_[0]->parts().sends[0].bytes.data()); }

void Group::ReduceScatter() {
  for (int to = 0; to < size(); ++to) {
    std::vector<Part> terms;
    for (const GroupStep* step : arrived_) terms.push_back(step->parts().sends[to]);
    SumParts(terms, arrived_[to]->parts().receives[0].bytes, arrived_[to]->operation().type);
  }
}

void Group::AllReduce() {
  const std::span<std::byte> sum = arrived_[0]->parts().receives[0].bytes;
  std::vector<Part> terms;
  for (const GroupStep* step : arrived_) terms.push_back(step->parts().sends[0]);
  SumParts(terms, sum, arrived_[0]->operation().type);
  for (const GroupStep* step : arrived_) {
    if (!sum.empty()) std::memmove(step->parts().receives[0].bytes.data(), sum.data(), sum.size());
  }
}

class Groups final : public VirtualGroups {
 public:
  std::vector<std::unique_ptr<Communicator>> MakeWorld(VirtualJob& job) override;

  Member& Split(Member& member, int color) {
    Member& child = MakeMember(member.device);
    member.splits.push_back({color, &child});
    if (member.group != nullptr) Resolve(*member.group, member.splits.size() - 1);
    return child;
  }

 private:
  Member& MakeMember(VirtualDevice& device) {
    Member& member = members_.emplace_back(Member{.device = device});
    device.OnFailure([&member] {
      if (member.group != nullptr) member.group->Lose(member);
    });
    return member;
  }

  // Makes the groups of the `split`-th Split of `parent`, if all its members have called it.
  void Resolve(Group& parent, size_t split) {
    std::map<int, std::vector<Member*>> by_color;
    for (const Member* member : parent.members()) {
      if (member->splits.size() <= split) return;
      by_color[member->splits[split].color].push_back(member->splits[split].child);
    }
    for (auto& [color, members] : by_color) MakeGroup(std::move(members));
  }

  // Members may already have split it, and their streams wait for it.
  void MakeGroup(std::vector<Member*> members) {
    Group& group = groups_.emplace_back(members[0]->device.machine(), std::move(members));
    for (const Member* member : group.members()) {
      if (member->device.failed()) group.Lose(*member);
      if (!member->aborted.ok()) group.Abort(member->aborted);
    }
    for (size_t split = 0; split < group.members()[0]->splits.size(); ++split) Resolve(group, split);
    for (const Member* member : group.members()) {
      member->device.WakeStreams();
      if (VirtualConductor* conductor = member->device.job().conductor) conductor->Wake(member->device.rank());
    }
  }

  std::deque<Member> members_;
  std::deque<Group> groups_;
};

class VirtualCommunicator final : public Communicator {
 public:
  VirtualCommunicator(Groups& groups, Member& member) : groups_(groups), member_(member) {}

  int rank() const override {
    MOEPLAN_CHECK(member_.group != nullptr);
    return member_.rank;
  }
  int size() const override {
    MOEPLAN_CHECK(member_.group != nullptr);
    return member_.group->size();
  }

  void AllToAll(const PeerRows& send, const PeerRows& recv, Stream& stream) override {
    Queue(stream, {.kind = Operation::Kind::kAllToAll, .parts = [=](int, int size) {
                     return Parts{PartsOf(send, size), PartsOf(recv, size)};
                   }});
  }

  void AllGather(std::span<const std::byte> send, std::span<std::byte> recv, Stream& stream) override {
    Queue(stream, {.kind = Operation::Kind::kAllGather, .parts = [=](int, int size) {
                     MOEPLAN_CHECK(recv.size() == send.size() * size);
                     return Parts{SameToAll(Writable(send), size), EqualParts(recv, size)};
                   }});
  }

  void ReduceScatter(std::span<const std::byte> send, std::span<std::byte> recv, ElementType type,
                     Stream& stream) override {
    const auto parts = [=](int rank, int size) {
      MOEPLAN_CHECK(send.size() == recv.size() * size);
      return Parts{EqualParts(Writable(send), size), {{rank, recv}}};
    };
    Queue(stream, {.kind = Operation::Kind::kReduceScatter, .parts = parts, .type = type});
  }

  void AllReduce(std::span<const std::byte> send, std::span<std::byte> recv, ElementType type,
                 Stream& stream) override {
    MOEPLAN_CHECK(send.size() == recv.size());
    const auto parts = [=](int rank, int) { return Parts{{{rank, Writable(send)}}, {{rank, recv}}}; };
    Queue(stream, {.kind = Operation::Kind::kAllReduce, .parts = parts, .type = type});
  }

  void SendRecv(std::span<const Transfer> sends, std::span<const Transfer> recvs, Stream& stream) override {
    const auto parts = [sends = std::vector(sends.begin(), sends.end()),
                        recvs = std::vector(recvs.begin(), recvs.end())](int, int) {
      return Parts{PartsOf(sends), PartsOf(recvs)};
    };
    Queue(stream, {.kind = Operation::Kind::kSendRecv, .parts = parts});
  }

  void SendRecv(std::function<void(Transfers&)> list, Stream& stream) override {
    const auto parts = [list = std::move(list)](int, int) {
      Transfers now;
      list(now);
      return Parts{PartsOf(now.sends), PartsOf(now.recvs)};
    };
    Queue(stream, {.kind = Operation::Kind::kSendRecv, .parts = parts});
  }

  // An exchange, beside which all but the last sums are gathered; then their gather, of which the end alone is left. On
  // a clock of task times the exchange takes the task's time, and the gather none.
  void AllToAllAllGather(const PeerRows& send, const PeerRows& partial, int shards, std::span<std::byte> gathered,
                         ElementType type, Communicator& gather, Stream& stream) override {
    auto& gathering = static_cast<VirtualCommunicator&>(gather);
    Queue(stream, {.kind = Operation::Kind::kAllToAllAllGather, .parts = [=, &gathering](int, int size) {
                     return Parts{PartsOf(send, size), PartsOf(partial, size),
                                  gathering.GatheredBeside(gathered.size(), size / shards)};
                   }});
    const auto sums = [=, &exchange = std::as_const(member_)](int rank, int size) {
      const std::vector<Part> wholes = EqualParts(gathered, size);
      const std::vector<Part> partials = PartsOf(partial, exchange.group->size());
      if (exchange.device.machine().HoldsData(partial.data)) {
        for (const Part& sum : EqualParts(wholes[rank].bytes, exchange.group->size() / shards)) {
          SumParts(std::span(partials).subspan(static_cast<size_t>(sum.peer) * shards, shards), sum.bytes, type);
        }
      }
      return Parts{SameToAll(wholes[rank].bytes, size), wholes};
    };
    MOEPLAN_CHECK(member_.group != nullptr);
    gathering.Queue(stream, {.kind = Operation::Kind::kAllGatherEnd,
                             .parts = sums,
                             .share = static_cast<double>(shards) / member_.group->size()});
  }

  void Barrier(Stream& stream) override {
    Queue(stream, {.kind = Operation::Kind::kBarrier, .parts = [](int, int) { return Parts{}; }});
  }

  StatusOr<std::unique_ptr<Communicator>> Split(int color) override {
    Member& child = groups_.Split(member_, color);
    VirtualDevice& device = member_.device;
    if (VirtualConductor* conductor = device.job().conductor) {
      conductor->Await(
          device.rank(), [&] { return child.group != nullptr || device.failed(); }, kUnsplitGroup);
      if (device.failed()) return device.failure().Within("task split");
    }
    return std::make_unique<VirtualCommunicator>(groups_, child);
  }

  void Abort(const Status& why) override { AbortMember(member_, why); }

 private:
  // What this member of a gather sends to the others before the last of `sums` is in.
  std::vector<BytesTo> GatheredBeside(size_t gathered_bytes, int sums) const {
    std::vector<BytesTo> beside;
    if (member_.group == nullptr) return beside;
    for (const Member* member : member_.group->members()) {
      if (member == &member_) continue;
      beside.push_back({member->device.rank(), static_cast<double>(gathered_bytes) / size() * (sums - 1) / sums});
    }
    return beside;
  }

  void Queue(Stream& stream, Operation operation) {
    StepQueue& queue = QueueOf(stream);
    QueuedTask task = TakeTask(stream);
    const std::string name = task.name;
    queue.Push(name, std::make_unique<GroupStep>(member_, queue, std::move(task), std::move(operation)));
  }

  Groups& groups_;
  Member& member_;
};

std::vector<std::unique_ptr<Communicator>> Groups::MakeWorld(VirtualJob& job) {
  std::vector<Member*> members;
  for (const auto& device : job.devices) members.push_back(&MakeMember(*device));
  std::vector<std::unique_ptr<Communicator>> world;
  for (Member* member : members) world.push_back(std::make_unique<VirtualCommunicator>(*this, *member));
  MakeGroup(std::move(members));
  return world;
}

}  // namespace

std::unique_ptr<VirtualGroups> MakeVirtualGroups() { return std::make_unique<Groups>(); }

}  // namespace moeplan::executor
