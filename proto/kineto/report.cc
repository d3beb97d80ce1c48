#include "proto/kineto/report.h"

#include <algorithm>
#include <cstdio>

#include "models/text.h"

namespace moeplan::kineto {
namespace {

std::string Milliseconds(double time_s) {
  char text[64];
  std::snprintf(text, sizeof text, "%.4g ms", time_s * 1e3);
  return text;
}

std::string Share(double part, double whole) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f %%", whole > 0 ? 100 * part / whole : 0.0);
  return text;
}

size_t CountOf(const Instructions& instructions, const auto& fits) {
  return static_cast<size_t>(std::ranges::count_if(instructions.all, fits));
}

std::string Counted(size_t count, const char* one, const char* several) {
  return StrCat(count, " ", count == 1 ? one : several);
}

class Notes {
 public:
  Notes(const Trace& trace, const StepWork& work, const WeightGradients& gradients, const Instructions& instructions)
      : trace_(trace), work_(work), gradients_(gradients), instructions_(instructions) {}

  std::vector<std::string> Write(bool has_ranks_per_node) {
    AddSummary();
    AddTimes();
    AddCommunication(has_ranks_per_node);
    AddWeightGradients();
    AddUnmapped();
    return std::move(notes_);
  }

 private:
  void AddSummary() {
    const size_t gradients = CountOf(instructions_, [](const Instruction& one) { return one.weight_gradient; });
    const size_t exchanges =
        CountOf(instructions_, [](const Instruction& one) { return one.op == InstructionOp::kAllToAll; });
    notes_.push_back(StrCat(
        trace_.step.empty() ? "the whole trace" : trace_.step,
        trace_.steps > 1 ? StrCat(" (of ", trace_.steps, " steps)") : "", ": ",
        Counted(work_.pieces.size(), work_.on_gpu ? "kernel" : "operator", work_.on_gpu ? "kernels" : "operators"),
        " in ", Counted(instructions_.all.size(), "instruction", "instructions"), ", ",
        Counted(exchanges, "all-to-all", "all-to-alls"), " and ",
        Counted(gradients, "weight gradient", "weight gradients"), " among them"));
    if (trace_.step.empty()) {
      notes_.push_back("no ProfilerStep in the trace, so that all of it is taken for one step");
    }
    if (instructions_.is_coarse) {
      notes_.push_back(
          StrCat("neighbours are put together, because a graph has at most ", kMostInstructions, " instructions"));
    }
  }

  void AddTimes() {
    const double sum_s = instructions_.recognised_s + instructions_.unmapped_s;
    const double wall_s = work_.wall_us * 1e-6;
    notes_.push_back(StrCat("the step takes ", Milliseconds(wall_s), "; instructions of known operations take ",
                            Milliseconds(instructions_.recognised_s), ", ", Share(instructions_.recognised_s, sum_s),
                            " of all"));
    const double idle_us = work_.wall_us - work_.busy_us;
    if (work_.on_gpu && idle_us > 0.05 * work_.wall_us) {
      notes_.push_back(StrCat("the GPU does nothing for ", Milliseconds(idle_us * 1e-6), ", ",
                              Share(idle_us, work_.wall_us),
                              " of the step, and the graph does not have that time: launches wait for the host"));
    }
    if (work_.untied > 0) {
      notes_.push_back(
          StrCat(Counted(work_.untied, "kernel is", "kernels are"), " left out that nothing in the step has launched"));
    }
    if (trace_.other_events > 0) {
      notes_.push_back(StrCat(Counted(trace_.other_events, "event", "events"), " of other processes left out"));
    }
  }

  void AddCommunication(bool has_ranks_per_node) {
    const bool has_exchange = std::ranges::any_of(
        instructions_.all, [](const Instruction& one) { return one.op == InstructionOp::kAllToAll; });
    if (!has_exchange) {
      notes_.push_back("no all-to-all in the step: nothing for Lancet's passes to hide");
    }
    if (instructions_.without_bytes > 0) {
      notes_.push_back(StrCat(Counted(instructions_.without_bytes, "collective has", "collectives have"),
                              " no size in the trace, only a time: profile with record_shapes=True"));
    }
    const size_t without_group = CountOf(
        instructions_, [](const Instruction& one) { return CollectiveOf(one.op).has_value() && !one.group_size; });
    if (without_group > 0) {
      notes_.push_back(StrCat(Counted(without_group, "collective has", "collectives have"),
                              " no group size in the trace: only newer releases of PyTorch write it"));
    }
    if (!has_ranks_per_node && has_exchange) {
      notes_.push_back("collectives have no ranksPerNode: --ranks-per-node gives it");
    }
  }

  void AddWeightGradients() {
    const bool has_shapes = std::ranges::any_of(trace_.events, [](const Event& event) {
      return std::ranges::any_of(event.shapes, [](const Shape& shape) { return !shape.empty(); });
    });
    if (!has_shapes) {
      notes_.push_back("no shapes in the trace, so that no weight gradient is known: profile with record_shapes=True");
      return;
    }
    if (gradients_.ambiguous > 0) {
      notes_.push_back(
          StrCat(Counted(gradients_.ambiguous, "backward node has", "backward nodes have"),
                 " a weight gradient that its shape does not tell from another product, and stays where it "
                 "is"));
    }
    if (gradients_.hidden > 0) {
      notes_.push_back(
          StrCat(Counted(gradients_.hidden, "backward node of a library", "backward nodes of libraries"),
                 " may have weight gradients that nothing tells from their other kernels, and stay as they "
                 "are"));
    }
  }

  void AddUnmapped() {
    const auto& unmapped = instructions_.unmapped;
    const size_t shown = std::min(unmapped.size(), kMostUnmappedNotes);
    for (size_t i = 0; i < shown; ++i) {
      notes_.push_back(StrCat("line ", unmapped[i].line, ": ", unmapped[i].name, " is OTHER (",
                              Counted(unmapped[i].count, "instruction", "instructions"), ", ",
                              Milliseconds(unmapped[i].time_s), ")"));
    }
    if (unmapped.size() > shown)
      notes_.push_back(StrCat("and ", unmapped.size() - shown, " more names that are OTHER"));
  }

  const Trace& trace_;
  const StepWork& work_;
  const WeightGradients& gradients_;
  const Instructions& instructions_;
  std::vector<std::string> notes_;
};

}  // namespace

std::vector<std::string> NotesOf(const Trace& trace, const StepWork& work, const WeightGradients& gradients,
                                 const Instructions& instructions, bool has_ranks_per_node) {
  return Notes(trace, work, gradients, instructions).Write(has_ranks_per_node);
}

}  // namespace moeplan::kineto
