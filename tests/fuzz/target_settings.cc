// Settings of training systems: arguments of launch scripts and configuration files, by every table that ships. The
// first byte says which, and whether it is a file.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "planner/messages/targets.h"
#include "proto/convert/step.h"
#include "tests/fuzz/fuzzed.h"

namespace {

// By name, so that the first byte means the same table each time.
std::vector<moeplan::planner::Target> Targets() {
  std::vector<moeplan::planner::Target> targets;
  for (const char* name : {"bridge", "deepspeed", "megatron", "torchtitan", "tutel"}) {
    const auto text = moeplan::ReadTextFile(std::string(MOEPLAN_TARGETS) + "/" + name + ".json");
    MOEPLAN_CHECK(text.ok());
    auto target = moeplan::planner::TargetFromJson(*text, name);
    MOEPLAN_CHECK(target.ok());
    targets.push_back(*std::move(target));
  }
  return targets;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moeplan;
  using namespace moeplan::planner;
  static const std::vector<Target> targets = Targets();
  if (size == 0) return 0;
  const Target& target = targets[data[0] / 2 % targets.size()];
  const std::string_view text = TextOf(data + 1, size - 1);
  const StatusOr<SettingsRead> read = data[0] % 2 == 0 ? ReadArguments(target, text) : ReadConfig(target, text, "file");
  if (!read.ok()) {
    CheckRefusal(read.status());
    return 0;
  }
  // Whatever settings say is a layout that a step can read, if only to refuse it.
  const Facts facts = {{"gpus", 64}, {"experts", 64}, {"layers", 32}, {"heads", 32}, {"sequence_length", 4096}};
  const StatusOr<v1::CheckedSettings> checked = Check(target, *read, facts);
  if (!checked.ok()) return 0;  // A number that no layout can hold.
  StepQuestion question;
  question.request.model.moe_layer = {true, true};
  question.request.model.experts = 64;
  if (const Status step = ReadStepLayout(checked->layout(), "layout", question); !step.ok()) CheckRefusal(step);
  const v1::ExportedLayout exported = Export(target, checked->layout(), facts);
  MOEPLAN_CHECK(ToJson(exported).size() < (std::size_t{1} << 24));
  return 0;
}
