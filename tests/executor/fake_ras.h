// A service on this machine's loopback that answers as NCCL's RAS service does, or as it should not.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "executor/owned_fd.h"
#include "models/text.h"

namespace moeplan::testing {

class FakeRas {
 public:
  // `answer` is called for each client that has asked for a status, with what it sent; the connection ends after it.
  using Answer = std::function<void(int client, const std::string& question)>;

  explicit FakeRas(Answer answer) : answer_(std::move(answer)) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof own;
    const bool listens = bind(listener_.get(), reinterpret_cast<sockaddr*>(&own), length) == 0 &&
                         listen(listener_.get(), 8) == 0 &&
                         getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0;
    if (!listens) throw std::runtime_error("no socket on the loopback");
    address_ = StrCat("127.0.0.1:", ntohs(own.sin_port));
    thread_ = std::thread([this] { Serve(); });
  }
  ~FakeRas() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

  const std::string& address() const { return address_; }

  static void Send(int client, const std::string& text) { (void)!send(client, text.data(), text.size(), MSG_NOSIGNAL); }

 private:
  void Serve() {
    while (true) {
      const executor::OwnedFd client(accept(listener_.get(), nullptr, nullptr));
      if (client.get() < 0) return;
      std::string question;
      char bytes[256];
      while (!question.ends_with("STATUS\n")) {
        const ssize_t count = recv(client.get(), bytes, sizeof bytes, 0);
        if (count <= 0) break;
        question.append(bytes, count);
      }
      answer_(client.get(), question);
    }
  }

  const Answer answer_;
  const executor::OwnedFd listener_{socket(AF_INET, SOCK_STREAM, 0)};
  std::string address_;
  std::thread thread_;
};

// Of a job of four ranks, one of which is late.
inline constexpr char kRasStatus[] = R"(OK
NCCL version 2.28.3 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          2            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         2         4        4   RUNNING  MISMATCH

Errors
======

#0-0 (27a079b828ff1a75) INCOMPLETE
  Missing communicator data from 1 rank

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Rank 3 -- GPU 1 managed by process 483072 on node 10.0.0.2

)";

}  // namespace moeplan::testing
