// How many samples per second a planner acknowledges, committed and synced, over gRPC on this machine:
//
//   build/bin/append_bench [SECONDS for each row] [FOLDER of the database]
//
// Callers in 16 threads with a connection each, in the same process as the planner, and so on the same processors.
// Samples have 3 to 10 repeats and the provenance of a calibration.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "db/store.h"
#include "models/check.h"
#include "models/text.h"
#include "planner/client/planner_client.h"
#include "planner/service/server.h"

namespace moeplan {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr int kCallers = 16;

double SecondsSince(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

v1::Samples MakeSamples(int count) {
  v1::Samples samples;
  samples.set_name("cluster of a benchmark");
  samples.mutable_cluster()->set_nodes(8);
  samples.mutable_cluster()->set_gpus_per_node(8);
  for (int i = 0; i < count; ++i) {
    v1::Sample& sample = *samples.add_samples();
    sample.set_collective(v1::Collective::ALL_TO_ALL);
    sample.set_group_size(8);
    sample.set_ranks_per_node(8);
    sample.set_bytes(1024.0 * (1 + i));
    for (int repeat = 0; repeat < 3 + i % 8; ++repeat) sample.add_time_s(1.2345678e-5 * (1 + i + 0.01 * repeat));
    auto& provenance = *sample.mutable_provenance();
    provenance["hostname"] = "node-0123.cluster.example";
    provenance["backend"] = "cuda";
    provenance["device"] = "NVIDIA H100 80GB HBM3";
    provenance["driver"] = "550.54.15";
    provenance["nccl"] = "2.21.5";
    provenance["linkBytesPerS"] = "4.5e11";
    provenance["takenAt"] = "2026-01-31T23:59:58Z";
  }
  return samples;
}

struct Row {
  std::int64_t samples = 0;
  double time_s = 0;
  std::vector<double> latencies_s;
};

std::vector<double> Call(const std::string& address, const std::string& name, int batch, double time_s) {
  const auto client = client::PlannerClient::Connect({.address = address});
  MOEPLAN_CHECK(client.ok());
  v1::AppendSamplesRequest request;
  *request.mutable_samples() = MakeSamples(batch);
  request.set_calibration("calibration");
  std::vector<double> latencies_s;
  const auto begin = steady_clock::now();
  while (SecondsSince(begin) < time_s) {
    request.set_request_id(StrCat(name, "/", latencies_s.size()));
    const auto sent = steady_clock::now();
    const auto response = (*client)->AppendSamples(request);
    MOEPLAN_CHECK(response.ok() && response->stored_samples() == batch);
    latencies_s.push_back(SecondsSince(sent));
  }
  return latencies_s;
}

Row Measure(const std::string& address, int batch, double time_s) {
  std::vector<std::vector<double>> latencies_s(kCallers);
  const auto begin = steady_clock::now();
  {
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < kCallers; ++caller) {
      callers.emplace_back([&, caller] {
        latencies_s[static_cast<size_t>(caller)] = Call(address, StrCat(batch, "/", caller), batch, time_s);
      });
    }
  }
  Row row = {.time_s = SecondsSince(begin)};
  for (const auto& own : latencies_s) row.latencies_s.insert(row.latencies_s.end(), own.begin(), own.end());
  std::ranges::sort(row.latencies_s);
  row.samples = std::ssize(row.latencies_s) * batch;
  return row;
}

double Quantile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

void Run(const fs::path& folder, double time_s) {
  std::printf("%d callers, %u processors\n%8s %12s %12s %12s %14s\n", kCallers, std::thread::hardware_concurrency(),
              "batch", "samples/s", "median", "99 of 100", "bytes/sample");
  for (const int batch : {1, 10, 100, 1000}) {
    const fs::path db = folder / StrCat("append_bench_", getpid(), "_", batch, ".db");
    Row row;
    {
      const auto server =
          service::Server::Start({.store = db, .grpc_address = "127.0.0.1:0", .http_address = "127.0.0.1:0"});
      MOEPLAN_CHECK(server.ok());
      row = Measure((*server)->grpc_address(), batch, time_s);
    }
    const double bytes = static_cast<double>(fs::file_size(db)) / static_cast<double>(row.samples);
    std::printf("%8d %12.0f %9.2f ms %9.2f ms %14.0f\n", batch, static_cast<double>(row.samples) / row.time_s,
                1e3 * Quantile(row.latencies_s, 0.5), 1e3 * Quantile(row.latencies_s, 0.99), bytes);
    for (const char* part : {"", "-wal", "-shm"}) fs::remove(db.string() + part);
  }
}

}  // namespace
}  // namespace moeplan

int main(int argc, char** argv) {
  const double time_s = argc > 1 ? std::atof(argv[1]) : 5;
  moeplan::Run(argc > 2 ? std::filesystem::path(argv[2]) : std::filesystem::temp_directory_path(), time_s);
}
