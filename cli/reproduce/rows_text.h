// The tables of a reproduction as a terminal shows them.
#pragma once

#include <string>

#include "moeplan/v1/report.pb.h"

namespace moeplan::cli {

// The rows with a verdict each, where anything is compared, and an empty line after them.
std::string Text(const v1::ReproducedTable& table);
// "9 of 11 figures ...", and how many choices and statements do; empty where nothing is compared.
std::string Summary(const v1::Reproduction& reproduction);

}  // namespace moeplan::cli
