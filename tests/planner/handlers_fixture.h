// Handlers on a store in a folder of its own, without a server around them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "db/store.h"
#include "planner/service/handlers/append_samples.h"
#include "planner/service/handlers/environment.h"
#include "planner/service/handlers/put_profile.h"
#include "planner/service/handlers/put_samples.h"
#include "proto/convert/samples.h"
#include "service_fixture.h"

namespace moeplan {

class HandlersTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    Reopen();
  }

  // As after a restart: the same file, no memory.
  void Reopen() {
    sample_writer_.reset();
    store_.reset();
    auto store = Store::Open(db());
    ASSERT_TRUE(store.ok()) << store.status().message();
    store_ = std::make_unique<Store>(*std::move(store));
    puts_ = std::make_unique<service::Puts>();
    sample_writer_ = std::make_unique<service::SampleWriter>(*store_);
  }

  service::Environment environment() {
    service::Environment environment = {.store = *store_, .puts = *puts_, .sample_writer = *sample_writer_};
    if (knows_agent_) {
      environment.may_name_agent = [this](const std::string& agent, const std::string& /*caller*/) {
        return knows_agent_(agent);
      };
    }
    return environment;
  }

  int Put(const v1::PutSamplesRequest& request) {
    const auto response = service::PutSamples(environment(), request, {});
    EXPECT_TRUE(response.ok()) << response.status().message();
    return response.ok() ? response->profile_version() : 0;
  }
  int Put(const v1::PutProfileRequest& request) {
    const auto response = service::PutProfile(environment(), request, {});
    EXPECT_TRUE(response.ok()) << response.status().message();
    return response.ok() ? response->profile_version() : 0;
  }
  int Versions() {
    const auto page = store_->ListProfiles({.size = 1000});
    EXPECT_TRUE(page.ok());
    return static_cast<int>(page->profiles.size());
  }
  Status Append(const v1::PutSamplesRequest& request) {
    const SampleBatch batch = {.request_id = request.request_id(), .samples = *SamplesFromProto(request.samples())};
    return store_->AppendSamples({&batch, 1}).status();
  }

  std::unique_ptr<Store> store_;
  std::unique_ptr<service::Puts> puts_;
  std::unique_ptr<service::SampleWriter> sample_writer_;
  std::function<bool(const std::string&)> knows_agent_;
};

}  // namespace moeplan
