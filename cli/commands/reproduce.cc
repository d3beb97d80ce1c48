#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/reproduce/papers.h"
#include "cli/reproduce/rows.h"
#include "cli/reproduce/rows_text.h"
#include "cli/reproduce/steps/recipes.h"
#include "cli/reproduce/steps/reproduce_steps.h"
#include "cli/reproduce/steps/steps_text.h"
#include "models/text.h"

namespace moeplan::cli {
namespace {

constexpr const char *kSteps = "steps", *kRecipes = "recipes";

struct ReproduceOptions {
  std::string paper, data;
  bool perturb = false;
  bool json = false;
};

struct Paper {
  const char* name;
  StatusOr<Tables> (*reproduce)(const ShowProgress& progress);
};
constexpr Paper kPapers[] = {
    {"parm", ReproduceParm},     {"monta", ReproduceMonta}, {"schemoe", ReproduceSchemoe},
    {"lancet", ReproduceLancet}, {"joint", ReproduceJoint},
};

Status CheckPaper(const std::string& name) {
  std::string names;
  for (const Paper& paper : kPapers) {
    if (name.empty() || name == paper.name) return OkStatus();
    names += StrCat(names.empty() ? "" : ", ", paper.name);
  }
  return InvalidInput(StrCat("found '", name, "', expected one of ", names, ", or nothing for all of them, or ", kSteps,
                             ", or ", kRecipes));
}

Status RunSteps(const ReproduceOptions& options) {
  if (options.data.empty()) {
    return InvalidInput("--data: found nothing, expected the folder with measurements of training steps");
  }
  ASSIGN_OR_RETURN(const DataFolder folder, DataFolder::Open(options.data));
  Constants constants;
  ASSIGN_OR_RETURN(v1::ReproducedSteps reproduced, ReproduceSteps(folder, constants));
  if (options.perturb) RETURN_IF_ERROR(Perturb(folder, constants, reproduced));
  if (options.json) {
    PrintJson(reproduced);
  } else {
    std::fputs(Text(reproduced).c_str(), stdout);
  }
  return OkStatus();
}

Status RunRecipes(const ReproduceOptions& options) {
  if (options.data.empty() || options.perturb) {
    return InvalidInput(options.perturb ? StrCat("found --perturb, expected it with '", kSteps, "' alone")
                                        : "--data: found nothing, expected the folder with published jobs");
  }
  ASSIGN_OR_RETURN(const DataFolder folder, DataFolder::Open(options.data));
  ProgressBar bar("comparing");
  v1::Reproduction reproduction;
  ASSIGN_OR_RETURN(*reproduction.add_tables(),
                   ReproduceRecipes(folder, [&](double done, const std::string& what) { bar.Show(done, what); }));
  if (options.json) {
    PrintJson(reproduction);
  } else {
    std::fputs(Text(reproduction.tables(0)).c_str(), stdout);
  }
  return OkStatus();
}

StatusOr<Tables> TablesOf(const Paper& paper) {
  ProgressBar bar("reproducing");
  return paper.reproduce([&bar](double done, const std::string& what) { bar.Show(done, what); });
}

Status Run(const ReproduceOptions& options) {
  if (options.paper == kSteps) return RunSteps(options);
  if (options.paper == kRecipes) return RunRecipes(options);
  if (!options.data.empty() || options.perturb) {
    return InvalidInput(StrCat("found --", options.perturb ? "perturb" : "data", ", expected it with '", kSteps,
                               options.perturb ? "' alone" : StrCat("' or '", kRecipes, "' alone")));
  }
  RETURN_IF_ERROR(CheckPaper(options.paper));
  v1::Reproduction reproduction;
  for (const Paper& paper : kPapers) {
    if (!options.paper.empty() && options.paper != paper.name) continue;
    ASSIGN_OR_RETURN(const Tables tables, TablesOf(paper));
    for (const v1::ReproducedTable& table : tables) {
      *reproduction.add_tables() = table;
      if (options.json) continue;
      std::fputs(Text(table).c_str(), stdout);
      RETURN_IF_ERROR(FlushOutput());  // The next paper may take minutes.
    }
  }
  Summarise(reproduction);
  if (options.json) {
    PrintJson(reproduction);
  } else {
    std::fputs(Summary(reproduction).c_str(), stdout);
  }
  return OkStatus();
}

}  // namespace

void AddReproduce(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<ReproduceOptions>();
  CLI::App* command = AddCommand(app, invocation, "reproduce",
                                 "Print the papers' figures beside ours, from simulations of their testbeds",
                                 "moeplan reproduce monta", [options] { return Run(*options); });
  command->add_option(
      "paper", options->paper,
      "parm, monta, schemoe, lancet, or joint: the search of all four against each (default: all); "
      "or steps: training steps that others measured; or recipes: layouts that others published beside ours");
  command->add_option("--data", options->data, "With steps and recipes: the folder with their measurements");
  command->add_flag("--perturb", options->perturb, "With steps: what a tenth of each constant moves");
  command->add_flag("--json", options->json, "Print the tables as JSON");
}

}  // namespace moeplan::cli
