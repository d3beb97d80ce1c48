// What a program registers at its start, beyond what moeplan is built with (models/extension/extension.h).
//
// All registries freeze together when the first of them is read. From then on they are constant, so that any thread
// reads them without a lock, and a later registration is refused rather than seen by some readers only. What is read
// within a Registration freezes nothing. Registrations come from one thread.
#pragma once

#include <cstddef>
#include <deque>
#include <string_view>
#include <utility>

#include "models/status.h"

namespace moeplan {

// Ends the time for registrations, unless the calling thread is within one. Any thread may call it.
void FreezeRegistries();

// kInvalidInput, about `what` ("codec FP4"), once registries are frozen.
Status RegistriesOpen(std::string_view what);

// The scope in which a thread registers one thing.
class Registration {
 public:
  Registration();
  ~Registration();
  Registration(const Registration&) = delete;
};

// Entries by number, the built-in ones first. References to entries stay valid.
template <typename Entry>
class Registry {
 public:
  explicit Registry(std::deque<Entry> built_in = {}) : entries_(std::move(built_in)) {}

  // Requires RegistriesOpen.
  void Add(Entry entry) { entries_.push_back(std::move(entry)); }

  size_t size() const { return entries().size(); }
  // Requires a number below size().
  const Entry& At(size_t number) const { return entries().at(number); }

 private:
  const std::deque<Entry>& entries() const {
    FreezeRegistries();
    return entries_;
  }

  std::deque<Entry> entries_;
};

}  // namespace moeplan
