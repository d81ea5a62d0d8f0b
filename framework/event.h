// A point in a stream's work for which the host, or another stream, can wait. On a CPU a call is done when it returns,
// so there is nothing to wait for.
#pragma once

#include <memory>

#include "framework/stream.h"

namespace ringtrain {

/// A point in some stream's work, or null if it has passed already. Any thread may hold and release it.
using Event = std::shared_ptr<const void>;

/// Returns an event after the work that the stream has received so far.
Event record_event(const Stream& stream);
/// Returns when the event has passed. Any thread may call it.
void synchronize(const Event& event);

}  // namespace ringtrain
