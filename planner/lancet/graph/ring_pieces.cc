#include "planner/lancet/graph/ring_pieces.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "models/check.h"
#include "models/text.h"

namespace moeplan::planner {
namespace {

std::string PieceOf(const std::string& name, int piece) { return StrCat(name, ".piece", piece); }

bool IsProduct(const Instruction& one) { return one.op == InstructionOp::kMatmul && !one.weight_gradient; }

// Decides which instructions are cut, and which of them pass pieces on to which.
class Cut {
 public:
  Cut(const std::map<std::string, int>& pieces, const std::vector<Instruction>& instructions) : all_(instructions) {
    for (size_t i = 0; i < all_.size(); ++i) {
      for (const std::string& tensor : all_[i].outputs) producer_[tensor] = i;
    }
    pieces_.assign(all_.size(), 1);
    for (size_t i = 0; i < all_.size(); ++i) {
      for (const std::string& tensor : all_[i].inputs) {
        if (const auto from = producer_.find(tensor); from != producer_.end()) Pair(pieces, from->second, i);
      }
    }
  }

  int PiecesOf(size_t i) const { return pieces_[i]; }
  // Appends the names under which a piece of the reader, or the reader that is not cut (1), reads the tensor.
  void AppendRead(size_t reader, int piece, const std::string& tensor, std::vector<std::string>& inputs) const {
    const auto from = producer_.find(tensor);
    if (from == producer_.end() || pieces_[from->second] == 1) return inputs.push_back(tensor);
    if (pairs_.contains({from->second, reader})) return inputs.push_back(PieceOf(tensor, piece));
    for (int one = 1; one <= pieces_[from->second]; ++one) inputs.push_back(PieceOf(tensor, one));
  }

 private:
  // Cuts both where one is an exchange and the other the product beside it.
  void Pair(const std::map<std::string, int>& pieces, size_t from, size_t to) {
    const Instruction &one = all_[from], &other = all_[to];
    const bool reads = one.op == InstructionOp::kAllGather && IsProduct(other) && pieces.contains(one.id);
    const bool makes = other.op == InstructionOp::kReduceScatter && IsProduct(one) && pieces.contains(other.id);
    if (!reads && !makes) return;
    pairs_.insert({from, to});
    pieces_[from] = pieces_[to] = pieces.at(reads ? one.id : other.id);
  }

  const std::vector<Instruction>& all_;
  std::unordered_map<std::string, size_t> producer_;
  std::vector<int> pieces_;
  std::set<std::pair<size_t, size_t>> pairs_;
};

Instruction Piece(const Instruction& whole, int piece, int pieces) {
  Instruction one = whole;
  one.id = PieceOf(whole.id, piece);
  const auto shorten = [pieces](double& value) { value /= pieces; };
  if (one.time_s) shorten(*one.time_s);
  if (one.bytes) shorten(*one.bytes);
  std::ranges::for_each(one.part_times_s, shorten);
  std::ranges::for_each(one.output_bytes, shorten);
  for (Work& work : one.work) shorten(work.size);
  for (std::string& tensor : one.outputs) tensor = PieceOf(tensor, piece);
  return one;
}

}  // namespace

void CutIntoPieces(const std::map<std::string, int>& pieces, std::vector<Instruction>& instructions) {
  if (pieces.empty()) return;
  const Cut cut(pieces, instructions);
  std::vector<Instruction> result;
  for (size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& whole = instructions[i];
    MOEPLAN_CHECK(whole.forward.empty());
    const bool is_cut = cut.PiecesOf(i) > 1;
    for (int piece = 1; piece <= cut.PiecesOf(i); ++piece) {
      Instruction one = is_cut ? Piece(whole, piece, cut.PiecesOf(i)) : whole;
      one.inputs.clear();
      for (const std::string& tensor : whole.inputs) cut.AppendRead(i, piece, tensor, one.inputs);
      result.push_back(std::move(one));
    }
  }
  instructions = std::move(result);
}

}  // namespace moeplan::planner
