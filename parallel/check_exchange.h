// What every communicator asks of an exchange, whatever carries it.
#pragma once

#include "parallel/communicator.h"

namespace ringtrain {

/// Throws an internal Error unless each side of an exchange among `size` ranks has no peer, or a peer and memory: the
/// host's, or a GPU's if device_memory.
inline void check_exchange(const ConstTensorView& send, int to, const TensorView& receive, int from, int size,
                           bool device_memory) {
  const auto fits = [size](const ConstTensorView& tensor, int peer) {
    return peer == no_peer || (peer >= 0 && peer < size && (tensor.data || tensor.bytes() == 0));
  };
  ensure(fits(send, to), "a send has a peer and data");
  ensure(fits(receive, from), "a receive has a peer and memory");
  ensure(device_memory || ((to == no_peer || send.device.is_cpu()) && (from == no_peer || receive.device.is_cpu())),
         "GPU memory is exchanged by communicators that are ordered with a GPU's stream");
}

}  // namespace ringtrain
