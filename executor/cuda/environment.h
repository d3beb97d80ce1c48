// Variables of the environment that CUDA and NCCL read once, when they are first used.
#pragma once

namespace moeplan::executor::cuda {

// Sets two variables, each where the environment does not have it.
//
// NCCL_LAUNCH_ORDER_IMPLICIT=1 (NCCL 2.26 and later): operations of several communicators start on the card in the
// order in which the thread of the device has queued them. Without it two ranks may start them in different orders and
// wait for each other forever. A driver older than 12.9 runs those of a graph one after the other then.
//
// CUDA_DEVICE_MAX_CONNECTIONS=32: up to 32 streams have a queue of the card each. CUDA's default is 8; streams that
// share a queue wait for what others have put there first.
//
// Cheap, so it is called wherever CUDA may be used first. A program that has used CUDA or NCCL before sets them itself.
void PrepareEnvironment();

}  // namespace moeplan::executor::cuda
