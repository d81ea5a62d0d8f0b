// The checks of an exchange that all communicators share.
#pragma once

#include <fmt/core.h>

#include "framework/checks/argument_check.h"
#include "parallel/communicator.h"

namespace ringtrain {

/// Refuses a call unless each side of an exchange among `size` ranks has no peer, or has a peer and memory: on the
/// host, or on a GPU if device_memory. line: the caller's.
inline void check_exchange(const ConstTensorView& send, int to, const TensorView& receive, int from, int size,
                           bool device_memory, const CallerLine& line) {
  const auto check = [&](const ConstTensorView& tensor, const char* name, int peer) {
    if (peer == no_peer) return;
    if (peer < 0 || peer >= size) {
      refuse_call(line, fmt::format("{} has the peer {}, but ranks are 0 to {}", name, peer, size - 1));
    }
    require_memory(tensor, name, line);
    if (!device_memory && !tensor.device.is_cpu()) {
      refuse_call(line, fmt::format("{} is on {}, but this communicator sends only host memory; to send GPU "
                                    "memory, use NCCL, or thread ranks after set_stream",
                                    name, tensor.device.name()));
    }
  };
  check(send, "send", to);
  check(receive, "receive", from);
}

/// Refuses a wait for a request that is not pending.
inline void check_waited(bool under_way, const CallerLine& line) {
  require_call(
      under_way,
      "the request is not in progress here: wait once for each request, with the communicator that returned it", line);
}

}  // namespace ringtrain
