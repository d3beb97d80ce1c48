#include "models/registry.h"

#include <atomic>

#include "models/text.h"

namespace moeplan {
namespace {

std::atomic<bool> frozen = false;
thread_local int registrations_here = 0;

}  // namespace

void FreezeRegistries() {
  if (!frozen.load(std::memory_order_acquire) && registrations_here == 0) frozen.store(true, std::memory_order_release);
}

Status RegistriesOpen(std::string_view what) {
  if (!frozen.load(std::memory_order_acquire)) return OkStatus();
  return InvalidInput(
      StrCat(what,
             ": found a registration after registered names were read, expected all of them at the start of the "
             "program"));
}

Registration::Registration() { ++registrations_here; }
Registration::~Registration() { --registrations_here; }

}  // namespace moeplan
