#include "planner/service/samples/fit_memory.h"

#include <openssl/evp.h>

#include <memory>
#include <optional>

#include "models/check.h"
#include "models/measurement/cost_key.h"

namespace moeplan::service {
namespace {

class Digest {
 public:
  Digest() { MOEPLAN_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1); }

  void Add(const void* bytes, size_t count) { MOEPLAN_CHECK(EVP_DigestUpdate(context_.get(), bytes, count) == 1); }
  void Add(double number) { Add(&number, sizeof number); }
  std::string Text() {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    MOEPLAN_CHECK(EVP_DigestFinal_ex(context_.get(), bytes, &size) == 1);
    return {reinterpret_cast<const char*>(bytes), size};
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  const std::unique_ptr<EVP_MD_CTX, Free> context_{EVP_MD_CTX_new()};
};

// How many times each size has comes before them, so that no two curves have the same bytes.
std::string DigestOf(const CostKey& key, const std::vector<SizedTimes>& measurements) {
  Digest digest;
  const std::string name = Describe(key);
  digest.Add(static_cast<double>(name.size()));
  digest.Add(name.data(), name.size());
  for (const SizedTimes& one : measurements) {
    digest.Add(one.size);
    digest.Add(static_cast<double>(one.times_s.size()));
    digest.Add(one.times_s.data(), one.times_s.size() * sizeof(double));
  }
  return digest.Text();
}

}  // namespace

CostModel FitMemory::Fit(const CostKey& key, const std::vector<SizedTimes>& measurements) {
  const std::string digest = DigestOf(key, measurements);
  {
    const std::scoped_lock lock(mutex_);
    if (const auto place = places_.find(digest); place != places_.end()) {
      known_.splice(known_.begin(), known_, place->second);
      return known_.front().second;
    }
  }
  CostModel model = FitCurve(measurements);
  const std::scoped_lock lock(mutex_);
  ++fitted_;
  if (places_.contains(digest)) return model;  // Another thread was as quick.
  known_.emplace_front(digest, model);
  places_[digest] = known_.begin();
  if (known_.size() > most_curves_) {
    places_.erase(known_.back().first);
    known_.pop_back();
  }
  return model;
}

int FitMemory::fitted() const {
  const std::scoped_lock lock(mutex_);
  return fitted_;
}

}  // namespace moeplan::service
