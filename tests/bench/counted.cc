#include "tests/bench/counted.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace moeplan::bench {
namespace {

std::atomic<uint64_t> allocations = 0, threads_made = 0;

#ifndef MOEPLAN_SANITIZED
void* Allocate(size_t bytes, size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
}
#endif

}  // namespace

#ifdef MOEPLAN_SANITIZED
bool Counts() { return false; }
#else
bool Counts() { return true; }
#endif
uint64_t Allocations() { return allocations; }
uint64_t ThreadsMade() { return threads_made; }

}  // namespace moeplan::bench

#ifndef MOEPLAN_SANITIZED
// The forms that the standard's others (arrays, nothrow) call.
void* operator new(size_t bytes) {
  if (void* memory = moeplan::bench::Allocate(bytes, alignof(std::max_align_t))) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  if (void* memory = moeplan::bench::Allocate(bytes, static_cast<size_t>(alignment))) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                              void* argument) noexcept {
  static const auto create = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  moeplan::bench::threads_made.fetch_add(1, std::memory_order_relaxed);
  return create(thread, attributes, start, argument);
}
#endif
