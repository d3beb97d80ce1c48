// What NCCL's RAS service of a job (NCCL 2.24 and later) knows when a collective hangs: which ranks are missing, lag,
// or have failed. It answers on the job's machines, in text, as the program ncclras shows it.
#pragma once

#include <string>
#include <string_view>

namespace moeplan::executor::cuda {

// "HOST:PORT" of this process's environment, NCCL_RAS_ADDR, or NCCL's default.
std::string RasAddress();

// Its errors and warnings, in one line of at most 1,000 printable characters. Empty: no service is there, it has not
// answered within `limit_s`, or it finds nothing wrong. Blocks, at most that long and as long as looking up a name
// takes.
std::string AskRas(const std::string& address, double limit_s = 2);

// The same of a status that the service has printed; of text that is none, its first lines. Pure.
std::string RasFindings(std::string_view status);

}  // namespace moeplan::executor::cuda
