// The optimizer's update where its state waits in host memory. One piece at a time comes to the GPU, is updated there,
// and goes back. Meanwhile the next piece comes and the last one goes: there are two places on the device, and a stream
// of copies for each direction.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "framework/allocator.h"
#include "framework/copy_stream.h"
#include "kernels/adamw.h"

namespace ringtrain {

class OffloadedUpdate {
 public:
  /// Elements of a piece: large enough that a copy runs at the link's speed.
  static constexpr std::int64_t piece_elements = std::int64_t{4} << 20;

  /// Makes two places for pieces of at most `elements` under Tag::workspace. stream must outlive it.
  OffloadedUpdate(Allocator& allocator, Stream& stream, DType dtype, std::int64_t elements);

  /// adamw_update() of slices whose moments, and weights where there is `rounded`, are pinned host memory. What the
  /// stream is given afterwards finds them written.
  void run(Stream& stream, std::span<const AdamWSlice> slices, const AdamW& hyper);

 private:
  struct Slot {
    Tensor w, m, v;
    CopyStream::Event free;  // after what took its last piece back
  };
  void update(Stream& stream, Slot& slot, const AdamWSlice& piece, const AdamW& hyper, const CopyStream::Event& begun);

  std::array<Slot, 2> slots_;
  CopyStream coming_, going_;
  CopyStream::Event gone_;  // after the last piece
};

}  // namespace ringtrain
