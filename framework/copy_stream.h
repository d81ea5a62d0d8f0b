// Copies that run concurrently with a stream's work, ordered with it by events: messages between the GPU memory of
// ranks that are threads of one process, and data that moves to host memory and back before it is needed. On CUDA they
// have their own stream and the host waits for none of them, except from host to host; on a CPU a copy is done when the
// call returns.
//
// There is no circular wait: a copy waits only for events of work that its stream received earlier, and that work waits
// only for copies that were issued before it.
#pragma once

#include <memory>

#include "framework/const_tensor_view.h"
#include "framework/event.h"

namespace ringtrain {

class CopyStream {
 public:
  using Event = ringtrain::Event;
  /// What a copy is for, as the timeline shows it. name: a literal. layer, hop: -1 if not applicable.
  struct Label {
    const char* name = "copy";
    std::int64_t layer = -1, hop = -1;
  };

  CopyStream() = default;
  CopyStream(CopyStream&&) noexcept = default;
  CopyStream& operator=(CopyStream&&) noexcept = default;

  /// From now on, events are those of this stream, which must outlive this object.
  void set_stream(Stream& stream);
  /// Returns the stream; null before set_stream.
  Stream* stream() const { return stream_; }

  /// Returns an event after the work that the stream has received so far.
  Event record() const { return stream_ ? record_event(*stream_) : Event(); }
  /// to = from (of one size; host memory must be pinned), once `ready` (the data has arrived) and `free` (the target
  /// memory is no longer used) have passed. Returns an event after the copy.
  Event copy(const TensorView& to, const ConstTensorView& from, const Event& ready, const Event& free,
             const Label& label);
  /// Work that the stream receives from now on runs after the event.
  void wait(const Event& event) const;

 private:
  struct Cuda;
  Stream* stream_ = nullptr;
  std::shared_ptr<Cuda> cuda_;  // owned only by this object; null on a CPU
};

}  // namespace ringtrain
