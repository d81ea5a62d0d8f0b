// Copies that run beside a stream's work, ordered with it by events: messages between the GPU memory of ranks that are
// threads of one process, and what goes to host memory and comes back before it is needed. On CUDA they have a stream
// of their own and the host waits for none of them; on a CPU a copy is done when the call returns.
//
// Nothing waits in a circle: a copy waits for events of work that was given to its stream before, and that work waits
// only for copies that were given before it.
#pragma once

#include <memory>

#include "framework/const_tensor_view.h"
#include "framework/event.h"

namespace ringtrain {

class CopyStream {
 public:
  using Event = ringtrain::Event;
  /// What a copy is for: shown on the timeline. name: a literal. layer, hop: -1 where they mean nothing.
  struct Label {
    const char* name = "copy";
    std::int64_t layer = -1, hop = -1;
  };

  CopyStream() = default;
  CopyStream(CopyStream&&) noexcept = default;
  CopyStream& operator=(CopyStream&&) noexcept = default;

  /// From now on events are those of this stream, which must outlive this object.
  void set_stream(Stream& stream);
  /// Returns the stream; null before set_stream.
  Stream* stream() const { return stream_; }

  /// Returns an event after what the stream was given so far.
  Event record() const { return stream_ ? record_event(*stream_) : Event(); }
  /// to = from (of one size; host memory must be pinned), once `ready` and `free` were passed: the data is there, and
  /// the memory for it no longer in use. Returns an event after the copy.
  Event copy(const TensorView& to, const ConstTensorView& from, const Event& ready, const Event& free,
             const Label& label);
  /// What the stream is given from now on runs after the event.
  void wait(const Event& event) const;

 private:
  struct Cuda;
  Stream* stream_ = nullptr;
  std::shared_ptr<Cuda> cuda_;  // of this object alone; null on a CPU
};

}  // namespace ringtrain
