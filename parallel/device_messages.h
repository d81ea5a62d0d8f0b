// Messages between tensors in GPU memory of ranks that are threads of one process: copies from buffer to buffer on a
// stream of their own, ordered with the ranks' compute streams by events. The host waits for none of it. Which copy
// follows which mark is the communicator's to say; a build without CUDA has no device memory and never comes here.
//
// Nothing waits in a circle: a copy waits for marks of work that was given to its stream before, and that work waits
// only for copies that were given before it.
#pragma once

#include <memory>

#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

class DeviceMessages {
 public:
  /// A point in some rank's work; any thread may hold it and let it go.
  using Mark = std::shared_ptr<const void>;

  DeviceMessages();
  ~DeviceMessages();
  DeviceMessages(const DeviceMessages&) = delete;
  DeviceMessages& operator=(const DeviceMessages&) = delete;

  /// From now on marks are those of this stream, which must outlive this object; a CPU's stream is none.
  void order_with(Stream& stream);
  Stream* stream() const { return stream_; }

  /// Return a mark behind what the stream was given so far.
  Mark mark() const;
  /// Copies between devices, or within one, once `sent` and `free` were passed: the data is there, and the memory for
  /// it no longer in use. Return a mark behind the copy.
  Mark copy(const TensorView& to, const TensorView& from, const Mark& sent, const Mark& free);
  /// What the stream is given from now on runs after the mark.
  void follow(const Mark& mark);

 private:
  struct Copies;
  Stream* stream_ = nullptr;
  std::unique_ptr<Copies> copies_;
};

}  // namespace ringtrain
