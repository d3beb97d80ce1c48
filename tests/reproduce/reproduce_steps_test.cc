// `reproduce steps` on a folder written here: two machines, a handful of rows.
#include "cli/reproduce/steps/reproduce_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace moeplan::cli {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "moeplan_steps_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }
  StatusOr<v1::ReproducedSteps> Reproduce(Constants& constants) const {
    return ReproduceSteps(*DataFolder::Open(path_.string()), constants);
  }
  v1::ReproducedSteps Reproduce() const {
    Constants constants;
    const auto reproduced = Reproduce(constants);
    EXPECT_TRUE(reproduced.ok()) << reproduced.status().message();
    return reproduced.ok() ? *reproduced : v1::ReproducedSteps();
  }
  DataFolder Open() const { return *DataFolder::Open(path_.string()); }

 private:
  fs::path path_;
};

constexpr const char* kColumns =
    "case,gpu,gpus,nodes,precision,model,kind,layers,hidden,heads,kv_heads,head_dim,ffn,vocab,seq,mbs,micro_batches,"
    "gbs,tp,"
    "sp,pp,vp,cp,cp_comm,ep,dp,zero,recompute,ce_fusion,overlap,measured_ms,simumax_err_pct,measured_alloc_gib\n";
// Of the same model on 8 GPUs.
std::string Row(const std::string& name, const std::string& degrees, const std::string& measured) {
  return name + ",Z9-SXM,8,1,bf16,m,dense,4,1024,8,8,128,4096,1024,1024,1,4,32," + degrees + ",none,1,none," +
         measured + "\n";
}

// 1 Tflop/s products, 1 GiB/s memory without latency, and collectives of 1 GiB/s.
void WriteMachine(const Folder& folder) {
  std::string kernels = "gpu,op,peak_tflops,shape,efficiency,tflops\n";
  const auto product = [&](const std::string& layout, const std::string& accumulate) {
    kernels += "Z9-SXM,matmul,10,\"b=1, m=1024, k=1024, n=1024, layout=" + layout + ", accumulate=" + accumulate +
               ", out_dtype=bf16\",0.1,1\n";
  };
  product("TN", "False"), product("NN", "False"), product("NT", "True");
  for (const char* op : {"sdp_fwd", "sdp_bwd"}) {
    kernels += std::string("Z9-SXM,") + op +
               ",10,\"batch=1, seq_len=1024, head_num=8, kv_head_num=8, qk_head_dim=128, v_head_dim=128, "
               "qkv_contiguous=True\",0.1,1\n";
  }
  folder.Write("simumax_kernels.csv", kernels);
  const std::string op = R"({"scale": 1, "offset": -1, "efficient_factor": 1, "latency_us": 0})";
  folder.Write("simumax_system_z9_x.json",
               R"({"source": "made up", "networks": {"intra_with_pcie": false, "high_intra_node": {"bandwidth":
                  {"efficient_factor": 1, "gbps": 1, "latency_us": 0}, "op": {"all_reduce": )" +
                   op + R"(, "all_gather": )" + op + R"(, "reduce_scatter": )" + op + R"(, "all2all": )" + op +
                   R"(}}}, "bandwidth": {"default": {"efficient_factor": 1, "gbps": 1, "latency_us": 0}},
                  "op_defaults": {"matmul": {"tflops": 10}}})");
}

TEST(ReproduceStepsTest, AStepIsTheSumOfWhatWasMeasured) {
  Folder folder;
  WriteMachine(folder);
  folder.Write("simumax_steps.csv", kColumns + Row("a", "1,0,1,1,1,,1,8,1", "1000,10,"));
  const v1::ReproducedSteps reproduced = folder.Reproduce();
  ASSERT_EQ(reproduced.rows_size(), 1);
  const v1::ReproducedStep& row = reproduced.rows(0);
  EXPECT_EQ(row.set(), "simumax-z9-dense");
  EXPECT_EQ(row.case_(), "a");
  EXPECT_EQ(row.measured_s(), 1);
  EXPECT_DOUBLE_EQ(row.peer_s(), 1.1);
  EXPECT_FALSE(row.has_trivial_s());
  // 1 Tflop/s of products and of attention: 4 micro-batches of 1024 tokens, 4 layers; forward and twice backward.
  const double tokens = 1024, hidden = 1024;
  const double products = 3 * 2 * tokens * (4 * (4 * hidden * hidden + 3 * hidden * 4096) + hidden * 1024);
  const double attention = (1 + 2.5) * 4 * 2 * tokens * 1024 * 8 * 256;
  // Bytes at 1 GiB/s: see models/step/layer_work. Norms 5, residuals 6 and rotary 2 · 4 rows of each layer's two blocks
  // ...
  const double gibi = 1 << 30, rows = tokens * hidden * 2;
  const double layer_bytes = 2 * (5 + 6) * rows + 4 * 2 * rows + 8 * tokens * 4096 * 2;
  const double ends = (2 * 2 + 2 + 8) * tokens * hidden + 5 * rows + 4 * tokens * 1024 * 2;
  const double parameters = 4 * (4 * hidden * hidden + 3 * hidden * 4096) + 2 * hidden * 1024;
  const double optimizer = parameters * 12 + parameters / 8 * 34;
  const double exchange = 7.0 / 8 * parameters * (4 + 2) / gibi;
  const double expected_s =
      4 * ((products + attention) / 1e12 + (4 * layer_bytes + ends) / gibi) + optimizer / gibi + exchange;
  EXPECT_NEAR(row.predicted_s(), expected_s, 1e-6 * expected_s);
  EXPECT_NEAR(row.error(), expected_s - 1, 1e-6 * expected_s);
  EXPECT_LT(row.low_s(), row.predicted_s());
}

// Two layouts of one question; what was measured is what is predicted of the first, and twice or a little more than
// that of the second.
TEST(ReproduceStepsTest, LayoutsOfOneQuestionAreComparedInPairs) {
  const auto compared = [](double first_ms, double second_ms) {
    Folder folder;
    WriteMachine(folder);
    folder.Write("simumax_steps.csv", kColumns + Row("a", "1,0,1,1,1,,1,8,1", std::to_string(first_ms) + ",,") +
                                          Row("b", "1,0,2,1,1,,1,4,1", std::to_string(second_ms) + ",,"));
    return folder.Reproduce();
  };
  const v1::ReproducedSteps rough = compared(1, 1);
  const double first_ms = 1e3 * rough.rows(0).predicted_s(), second_ms = 1e3 * rough.rows(1).predicted_s();
  ASSERT_EQ(rough.sets(0).pairs(), 1);
  const v1::ReproducedSteps near = compared(first_ms, 1.01 * second_ms), far = compared(first_ms, 2 * second_ms);
  EXPECT_EQ(near.sets(0).pair_coverage(), 1);
  EXPECT_EQ(far.sets(0).pair_coverage(), 0);
  EXPECT_GT(far.sets(0).pair_half_width_median(), 0);
  EXPECT_LT(far.sets(0).pair_half_width_median(), 0.5);
}

TEST(ReproduceStepsTest, RowsThatWeCannotPriceSayWhy) {
  Folder folder;
  WriteMachine(folder);
  std::string other = Row("c", "1,0,1,1,1,,1,8,1", "1000,,");
  other.replace(other.find("Z9-SXM"), 6, "Y1-SXM");
  folder.Write("simumax_steps.csv",
               kColumns + Row("a", "3,0,1,1,1,,1,8,1", "1000,,") + Row("b", "1,0,1,1,2,ring,1,4,1", "1000,,") + other);
  const v1::ReproducedSteps reproduced = folder.Reproduce();
  ASSERT_EQ(reproduced.rows_size(), 3);
  EXPECT_THAT(reproduced.rows(0).reason(), HasSubstr("tensorParallel: found 3"));
  EXPECT_THAT(reproduced.rows(1).reason(), HasSubstr("cp_comm: found 'ring', which is not priced"));
  EXPECT_THAT(reproduced.rows(2).reason(), HasSubstr("found no simumax_system_y1_*.json"));
  for (const v1::ReproducedStep& row : reproduced.rows()) EXPECT_FALSE(row.has_predicted_s());
  for (const v1::ReproducedStepSet& set : reproduced.sets()) EXPECT_EQ(set.priced(), 0);
}

TEST(ReproduceStepsTest, TheNearestOtherRowIsCopied) {
  Folder folder;
  WriteMachine(folder);
  // Of c, a is one doubling away and b four.
  folder.Write("simumax_steps.csv", kColumns + Row("a", "2,1,1,1,1,,1,4,1", "1000,,") +
                                        Row("b", "8,1,1,1,1,,1,1,1", "3000,,") + Row("c", "1,0,1,1,1,,1,8,1", "700,,"));
  const v1::ReproducedSteps reproduced = folder.Reproduce();
  EXPECT_DOUBLE_EQ(reproduced.rows(2).trivial_s(), 1);
  EXPECT_DOUBLE_EQ(reproduced.rows(0).trivial_s(), 0.7);
}

TEST(ReproduceStepsTest, AConstantThatIsChangedMovesWhatHangsOnIt) {
  Folder folder;
  WriteMachine(folder);
  folder.Write("simumax_steps.csv", kColumns + Row("a", "1,0,1,1,1,,1,8,1", "1,,"));
  Constants constants;
  v1::ReproducedSteps reproduced = *folder.Reproduce(constants);
  ASSERT_TRUE(Perturb(folder.Open(), constants, reproduced).ok());
  ASSERT_EQ(static_cast<size_t>(reproduced.perturbed_size()), constants.used().size());
  double last = std::numeric_limits<double>::infinity();
  double of_memory = -1, of_unused = -1;
  for (const v1::PerturbedConstant& constant : reproduced.perturbed()) {
    EXPECT_FALSE(constant.source().empty()) << constant.constant();
    EXPECT_LE(constant.moves(), last);
    last = constant.moves();
    if (constant.constant() == "z9 bandwidth.default.gbps") of_memory = constant.moves();
    if (constant.constant() == "z9 networks.high_intra_node.op.all2all.efficient_factor") of_unused = constant.moves();
  }
  EXPECT_GT(of_memory, 0.01);
  EXPECT_EQ(of_unused, 0);
}

TEST(ReproduceStepsTest, ReleasesShareAFactorThatTheOtherRowsTell) {
  Folder folder;
  const std::string columns =
      "release,model,moe,task,system,gpus,precision,gbs,mbs,seq,fsdp,tp,pp,cp,vp,ep,etp,dp,step_s\n";
  const auto row = [](const std::string& release, const std::string& task, const std::string& step_s) {
    return release + ",LLAMA3_8B,0," + task + ",DGX-H100,8,BF16,64,1,4096,0,2,1,1,1,,,4," + step_s + "\n";
  };
  folder.Write("published_jobs.csv", columns + row("1", "pretrain", "10") + row("1", "pretrain", "12") +
                                         row("1", "pretrain", "20") + row("2", "pretrain", "30") +
                                         row("1", "lora", "1"));
  const v1::ReproducedSteps reproduced = folder.Reproduce();
  ASSERT_EQ(reproduced.rows_size(), 5);
  // All rows ask the same, so the factor makes each the median of the others of its release: 12 and 20, ...
  EXPECT_NEAR(reproduced.rows(0).predicted_s(), 16, 1e-9);
  EXPECT_NEAR(reproduced.rows(1).predicted_s(), 15, 1e-9);
  EXPECT_NEAR(reproduced.rows(2).predicted_s(), 11, 1e-9);
  EXPECT_NEAR(reproduced.rows(3).predicted_s(), 12, 1e-9);  // Of the system and precision.
  EXPECT_EQ(reproduced.rows(4).set(), "published-other");
  EXPECT_NEAR(reproduced.rows(4).predicted_s(), 12, 1e-9);
  EXPECT_THAT(reproduced.rows(0).reason(), HasSubstr("of other rows of the same kind, system, precision and release"));
  EXPECT_THAT(reproduced.rows(3).reason(), HasSubstr("of other rows of the same kind, system and precision"));
}

TEST(ReproduceStepsTest, WhatSoftwareDoesToExpertsSaysNothingOfDenseModels) {
  Folder folder;
  const std::string columns =
      "release,model,moe,task,system,gpus,precision,gbs,mbs,seq,fsdp,tp,pp,cp,vp,ep,etp,dp,step_s\n";
  const auto row = [](const std::string& model, const std::string& task, const std::string& step_s) {
    const std::string moe = model == "LLAMA3_8B" ? "0" : "1", ep = moe == "1" ? "8" : "1";
    return "1," + model + "," + moe + "," + task + ",DGX-H100,8,BF16,64,1,4096,0,1,1,1,1," + ep + ",,8," + step_s + "\n";
  };
  folder.Write("published_jobs.csv", columns + row("LLAMA3_8B", "pretrain", "10") + row("LLAMA3_8B", "pretrain", "12") +
                                         row("Qwen3_30B_a3B", "pretrain", "99") + row("LLAMA3_8B", "lora", "1"));
  const v1::ReproducedSteps reproduced = folder.Reproduce();
  ASSERT_EQ(reproduced.rows_size(), 4);
  EXPECT_NEAR(reproduced.rows(0).predicted_s(), 12, 1e-9);
  EXPECT_NEAR(reproduced.rows(1).predicted_s(), 10, 1e-9);
  EXPECT_EQ(reproduced.rows(2).set(), "published-moe-bf16");
  ASSERT_TRUE(reproduced.rows(2).has_predicted_s()) << reproduced.rows(2).reason();
  EXPECT_THAT(reproduced.rows(2).reason(), HasSubstr("factor 1: no other row of its kind and system"));
  // Rows that are not judged take what all judged ones say.
  const v1::ReproducedStep &dense = reproduced.rows(1), &experts = reproduced.rows(2), &other = reproduced.rows(3);
  EXPECT_GT(experts.measured_s() / experts.predicted_s(), 12 / dense.unscaled_s());
  EXPECT_NEAR(other.predicted_s() / other.unscaled_s(), 12 / dense.unscaled_s(), 1e-9);
}

TEST(ReproduceStepsTest, PipelineLayoutsOfMegatronAreRead) {
  Folder folder;
  const std::string columns =
      "release,model,moe,task,system,gpus,precision,gbs,mbs,seq,fsdp,tp,pp,cp,vp,ep,etp,dp,step_s,pp_layout\n";
  const auto row = [](const std::string& layout) {
    return "1,DeepSeekV3,1,pretrain,DGX-GB200,256,BF16,4096,1,4096,0,1,4,1,4,64,1,64,13," + layout + "\n";
  };
  folder.Write("published_jobs.csv", columns + row("Et*4|(t*4|)*14tmL") + row("Et*4|(t*4|)*13tmL") + row("Et*4|(t*4") +
                                         row("x") + row(std::string(100000, '(')));
  const v1::ReproducedSteps reproduced = folder.Reproduce();
  EXPECT_TRUE(reproduced.rows(0).has_predicted_s()) << reproduced.rows(0).reason();
  EXPECT_THAT(reproduced.rows(1).reason(), HasSubstr("stages: found 57 layers in all, expected the model's 61"));
  EXPECT_THAT(reproduced.rows(2).reason(), HasSubstr("pp_layout: found 'Et*4|(t*4', which is not priced"));
  EXPECT_THAT(reproduced.rows(3).reason(), HasSubstr("pp_layout"));
  EXPECT_THAT(reproduced.rows(4).reason(), HasSubstr("pp_layout"));
}

// Rows that no model or cluster can have are refused one by one, whatever they say.
TEST(ReproduceStepsTest, RowsOfNoModelHaveAReason) {
  Folder folder;
  WriteMachine(folder);
  const std::string good = Row("a", "1,0,1,1,1,,1,8,1", "1000,,");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string row = good;
    return row.replace(row.find(from), from.size(), to);
  };
  folder.Write("simumax_steps.csv",
               kColumns + changed("dense,4,1024", "dense,4,0") + changed("dense,4,1024", "dense,1000000000,1024") +
                   changed("128,4096,1024", "128,1073741824,1024") + Row("a", "33554432,0,1,1,1,,1,8,1", "1000,,") +
                   Row("a", "1,0,1,1,1,,1,8,1", "0,,0"));
  const v1::ReproducedSteps reproduced = folder.Reproduce();
  ASSERT_EQ(reproduced.rows_size(), 5);
  EXPECT_THAT(reproduced.rows(0).reason(), HasSubstr("modelDim: found 0, expected a whole number of 1"));
  EXPECT_THAT(reproduced.rows(1).reason(), HasSubstr("layers: found 4097, expected a whole number of 1 to 4096"));
  EXPECT_THAT(reproduced.rows(2).reason(), HasSubstr("denseHiddenDim: found 1073741824"));
  EXPECT_THAT(reproduced.rows(3).reason(), HasSubstr("tensorParallel: found 33554432"));
  // What is not above 0 was not measured.
  EXPECT_FALSE(reproduced.rows(4).has_measured_s());
  EXPECT_FALSE(reproduced.rows(4).has_error());
  EXPECT_TRUE(reproduced.rows(4).has_predicted_s());
}

TEST(ReproduceStepsTest, AnEmptyFolderIsRefused) {
  Folder folder;
  Constants constants;
  EXPECT_THAT(folder.Reproduce(constants).status().message(), HasSubstr("--data: found none of simumax_steps.csv"));
  EXPECT_THAT(DataFolder::Open("/nowhere/at/all").status().message(), HasSubstr("--data: found no folder"));
}

// With the measurements themselves: what docs/truth.md says, and no layout that ran is called unfit.
TEST(ReproduceStepsTest, MeasuredSteps) {
  const char* data = std::getenv("MOEPLAN_MEASURED_DATA");
  if (data == nullptr) GTEST_SKIP() << "MOEPLAN_MEASURED_DATA does not name the folder with training/simumax_steps.csv";
  Constants constants;
  const auto reproduced = ReproduceSteps(*DataFolder::Open(std::string(data) + "/training"), constants);
  ASSERT_TRUE(reproduced.ok()) << reproduced.status().message();
  for (const v1::ReproducedStepSet& set : reproduced->sets()) {
    if (!set.set().starts_with("simumax-")) continue;
    const bool is_b200 = set.set().starts_with("simumax-b200-");
    EXPECT_EQ(set.priced(), set.rows()) << set.set();
    EXPECT_LE(set.worst(), 0.13) << set.set();
    if (is_b200) {
      EXPECT_LT(set.mean_absolute_error(), set.peer_mean_absolute_error()) << set.set();
    }
    if (set.set() == "simumax-a100-dense") {
      EXPECT_LE(set.mean_absolute_error(), 0.04);
    }
    if (set.set() == "simumax-a100-moe") {
      EXPECT_LE(set.mean_absolute_error(), 0.05);
    }
    EXPECT_GE(set.kendall_tau(), 0.95) << set.set();
    if (set.has_regret_mean()) {
      EXPECT_LE(set.regret_mean(), 0.01) << set.set();
    }
    if (is_b200) {
      EXPECT_LE(set.memory_mean_absolute_error(), 0.02) << set.set();
    }
  }
  // Intervals were fitted on A100 rows, so those of B200 tell.
  int rows = 0, covered = 0, of_b200 = 0, covered_of_b200 = 0;
  std::vector<double> half_widths;
  for (const v1::ReproducedStep& row : reproduced->rows()) {
    if (!row.set().starts_with("simumax-")) continue;
    ++rows;
    const int lies = row.measured_s() >= row.low_s() && row.measured_s() <= row.high_s() ? 1 : 0;
    covered += lies;
    if (row.set().starts_with("simumax-b200-")) ++of_b200, covered_of_b200 += lies;
    half_widths.push_back((row.high_s() - row.low_s()) / (2 * row.predicted_s()));
    EXPECT_EQ(row.reason(), "") << row.case_();
    if (row.has_predicted_memory_bytes()) {
      EXPECT_NEAR(row.predicted_memory_bytes() / row.measured_memory_bytes(), 1, 0.015) << row.case_();
    }
  }
  ASSERT_GE(of_b200, 22);
  EXPECT_GE(covered_of_b200, 0.85 * of_b200);
  EXPECT_GE(covered, 0.85 * rows);
  EXPECT_LE(covered, 0.97 * rows);
  std::ranges::sort(half_widths);
  EXPECT_LE(half_widths[half_widths.size() / 2], 0.08);
}

}  // namespace
}  // namespace moeplan::cli
