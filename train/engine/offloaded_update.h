// The optimizer's update where its state waits in host memory. One piece at a time comes to the GPU, is updated there,
// and goes back. Meanwhile the next piece comes and the last one goes: there are two places on the device, and a stream
// of copies for each direction.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "framework/allocator.h"
#include "framework/copy_stream.h"
#include "train/engine/update_rule.h"

namespace ringtrain {

class OffloadedUpdate {
 public:
  /// Elements of a piece: large enough that a copy runs at the link's speed.
  static constexpr std::int64_t piece_elements = std::int64_t{4} << 20;

  /// Makes two places for pieces of at most `elements` under Tag::workspace. stream must outlive it.
  OffloadedUpdate(Allocator& allocator, Stream& stream, const std::vector<std::string>& state_names, DType dtype,
                  std::int64_t elements);

  /// rule.update of slices whose state, and weights where there is `rounded`, are pinned host memory. What the stream
  /// is given afterwards finds them written.
  void run(Stream& stream, UpdateRule& rule, std::span<const SliceUpdate> slices, const UpdateStep& step);

 private:
  struct Place {
    Tensor weights;
    std::vector<Tensor> state;
    CopyStream::Event free;  // after what took its last piece back
  };
  void update(Stream& stream, UpdateRule& rule, Place& place, const SliceUpdate& piece, const UpdateStep& step,
              const CopyStream::Event& begun);

  std::array<Place, 2> places_;
  CopyStream coming_, going_;
  CopyStream::Event gone_;  // after the last piece
};

}  // namespace ringtrain
