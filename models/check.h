// MOEPLAN_CHECK(condition): our own bug if it is false; prints where and aborts. Never for what the world can cause.
#pragma once

#include <cstdio>
#include <cstdlib>

// The file's name alone: __FILE__ would carry the folder of the build into every binary.
#define MOEPLAN_CHECK(condition)                                                              \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE_NAME__, __LINE__, #condition); \
      std::abort();                                                                           \
    }                                                                                         \
  } while (false)
