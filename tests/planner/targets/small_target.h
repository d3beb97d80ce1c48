// A table of a system that nobody has, small enough to be read beside a test.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "planner/targets/target.h"

namespace moeplan::planner {

inline Target SmallTarget(const std::string& form = "FLAGS") {
  const std::string text = R"({
    "target": "small", "title": "Small", "versionFrom": "1", "versionTo": "2", "repository": "owner/small",
    "commit": "0123456789012345678901234567890123456789", "form": ")" +
                           form + R"(", "section": "ARGUMENTS",
    "settings": [
      {"name": "tp_size", "type": "INTEGER", "default": 1, "least": 1, "source": "a.py:1"},
      {"name": "ep_size", "type": "INTEGER", "default": 1, "source": "a.py:2"},
      {"name": "experts", "type": "INTEGER", "given": "experts", "source": "a.py:3"},
      {"name": "exchange", "type": "STRING", "default": "nccl", "choices": ["nccl", "fused"], "source": "a.py:4"},
      {"name": "fused_kind", "type": "STRING", "default": "deep", "source": "a.py:5"},
      {"name": "again", "type": "LIST", "choices": ["act", "norm"], "source": "a.py:6"},
      {"name": "capacity", "type": "NUMBER", "source": "a.py:7"},
      {"name": "rows_cut", "type": "BOOLEAN", "default": false, "source": "a.py:8"},
      {"name": "hides", "type": "BOOLEAN", "default": true, "flag": "--no-hide", "constant": false, "source": "a.py:9"},
      {"name": "layers_of", "type": "STRING", "source": "a.py:10"},
      {"name": "grouped", "type": "BOOLEAN", "default": false, "source": "a.py:11"}],
    "fields": [
      {"field": "tensorParallel", "setting": "tp_size"},
      {"field": "expertParallel", "setting": "ep_size"},
      {"field": "pipelineParallel", "choices": [{"value": 1, "settings": {}}]},
      {"field": "dispatcher", "choices": [
        {"value": "DEEPEP", "settings": {"exchange": "fused", "fused_kind": "deep"}},
        {"value": "ALL_TO_ALL", "settings": {"exchange": "nccl"}}]},
      {"field": "recompute", "choices": [
        {"value": "SELECTIVE", "settings": {}, "when": "again != None"}, {"value": "NONE", "settings": {}}]},
      {"field": "recomputeModules", "setting": "again", "values": {"MOE_ACT": "act", "LAYERNORM": "norm"}},
      {"field": "capacityFactor", "setting": "capacity", "values": {"0": null}},
      {"field": "sequenceParallel", "setting": "rows_cut"},
      {"field": "overlapGradients", "setting": "hides"},
      {"field": "stages", "setting": "layers_of", "codec": "PIPELINE_LAYOUT"}],
    "fixed": [{"setting": "grouped", "value": true, "when": "given.experts > 0", "reason": "why"}],
    "environment": [{"name": "QUEUES", "value": "32", "when": "exchange == 'fused'", "reason": "why", "source": "b.py:1"}],
    "notExpressible": [{"field": "expertShardingParallel", "only": [1], "reason": "Experts are whole."}],
    "rules": [
      {"rule": "experts-divide", "settings": ["ep_size", "experts"], "when": "experts != None",
       "requires": "experts % ep_size == 0", "reason": "Experts are dealt out evenly.", "source": "c.py:3"},
      {"rule": "cut-rows-need-tp", "settings": ["rows_cut", "tp_size"], "when": "rows_cut", "requires": "tp_size > 1",
       "reason": "There is nothing to cut.", "source": "other/lib:d.py:9@abcdef", "severity": "WARNING"}]})";
  StatusOr<Target> target = TargetFromJson(text, "small");
  EXPECT_TRUE(target.ok()) << target.status().message();
  return *std::move(target);
}

}  // namespace moeplan::planner
