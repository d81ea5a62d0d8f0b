// The optimizer's update if its state is offloaded to host memory. One piece at a time is copied to the GPU, updated
// there, and copied back. Meanwhile the next piece arrives and the previous one leaves: the device has two slots, and
// each direction has its own copy stream.
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
  /// Elements of a piece: large enough that copies run at the link's speed.
  static constexpr std::int64_t piece_elements = std::int64_t{4} << 20;

  /// Makes two slots for pieces of at most `elements` under Tag::workspace. masters: whether weights, of float32, are
  /// on the host. stream must outlive it.
  OffloadedUpdate(Allocator& allocator, Stream& stream, bool masters, DType moments, std::int64_t elements);

  /// Runs adamw_update() on slices whose moments, and whose weights if there is `rounded`, are pinned host memory.
  /// Later work on the stream sees the results.
  void run(Stream& stream, std::span<const AdamWSlice> slices, const AdamW& hyper);

 private:
  struct Slot {
    Tensor w, m, v;
    CopyStream::Event free;  // after the copy that returned its last piece
  };
  void update(Stream& stream, Slot& slot, const AdamWSlice& piece, const AdamW& hyper, const CopyStream::Event& begun);

  std::array<Slot, 2> slots_;
  CopyStream coming_, going_;
  CopyStream::Event gone_;  // after the last piece was copied back
};

}  // namespace ringtrain
