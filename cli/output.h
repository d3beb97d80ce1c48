// Every command prints its answer on standard output by what is here, or by the C library.
#pragma once

#include <string_view>

#include "models/status.h"

namespace moeplan::cli {

// Takes the descriptors of standard input, output and error where the program was started without them (`>&-`), so that
// no database or socket is opened under one of these numbers and then printed into. Using them fails as before.
void ReserveStandardStreams();

// Prints the text as it is.
void Print(std::string_view text);

// Writes out what was printed so far. kUnavailable when some of it, now or earlier, could not be written.
Status FlushOutput();

}  // namespace moeplan::cli
