// A point in a stream's work that the host, or another stream, can wait for. On a CPU a call is done when it returns:
// there is nothing to wait for.
#pragma once

#include <memory>

#include "framework/stream.h"

namespace ringtrain {

/// A point in some stream's work, or null: one that was passed already. Any thread may hold it and let it go.
using Event = std::shared_ptr<const void>;

/// Returns an event after what the stream was given so far.
Event record_event(const Stream& stream);
/// Returns when the event was passed. Any thread may call it.
void synchronize(const Event& event);

}  // namespace ringtrain
