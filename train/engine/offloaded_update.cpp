#include "train/engine/offloaded_update.h"

#include <algorithm>

namespace ringtrain {

OffloadedUpdate::OffloadedUpdate(Allocator& allocator, Stream& stream, const std::vector<std::string>& state_names,
                                 DType dtype, std::int64_t elements) {
  const std::int64_t piece = std::min(elements, piece_elements);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const auto make = [&](std::string what) {
      std::replace(what.begin(), what.end(), '_', ' ');
      return allocator.make(Tag::workspace, fmt::format("optimizer piece {} {}", i, what), dtype, {piece});
    };
    places_[i].weights = make("weights");
    for (const std::string& name : state_names) places_[i].state.push_back(make(name));
  }
  if (allocator.planning()) return;
  coming_.set_stream(stream);
  going_.set_stream(stream);
}

void OffloadedUpdate::run(Stream& stream, UpdateRule& rule, std::span<const SliceUpdate> slices,
                          const UpdateStep& step) {
  const CopyStream::Event begun = coming_.record();
  std::size_t next = 0;
  for (const SliceUpdate& slice : slices) {
    for (std::int64_t begin = 0; begin < slice.weights.numel(); begin += piece_elements) {
      const std::int64_t end = std::min(slice.weights.numel(), begin + piece_elements);
      SliceUpdate piece{.weights = slice.weights.flat(begin, end),
                        .state = {},
                        .gradients = slice.gradients.flat(begin, end),
                        .rounded = slice.rounded.empty() ? TensorView{} : slice.rounded.flat(begin, end),
                        .weight_decay = slice.weight_decay};
      for (const TensorView& values : slice.state) piece.state.push_back(values.flat(begin, end));
      update(stream, rule, places_[next++ % places_.size()], piece, step, begun);
    }
  }
  going_.wait(gone_);
}

void OffloadedUpdate::update(Stream& stream, UpdateRule& rule, Place& place, const SliceUpdate& piece,
                             const UpdateStep& step, const CopyStream::Event& begun) {
  const bool master = !piece.rounded.empty();  // else the weights are the model's, on the device
  SliceUpdate here = piece;
  for (std::size_t i = 0; i < here.state.size(); ++i) {
    here.state[i] = place.state[i].view().prefix(piece.state[i].shape);
  }
  if (master) here.weights = place.weights.view().prefix(piece.weights.shape);

  // One copy after the other, each way: the end of the last is the end of all.
  const CopyStream::Label fetch{.name = "optimizer state from host memory"};
  const CopyStream::Label send{.name = "optimizer state to host memory"};
  CopyStream::Event came;
  if (master) came = coming_.copy(here.weights, piece.weights, begun, place.free, fetch);
  for (std::size_t i = 0; i < here.state.size(); ++i) {
    came = coming_.copy(here.state[i], piece.state[i], begun, place.free, fetch);
  }
  coming_.wait(came);
  rule.update(stream, {&here, 1}, step);
  const CopyStream::Event updated = going_.record();
  if (master) gone_ = going_.copy(piece.weights, here.weights, updated, {}, send);
  for (std::size_t i = 0; i < here.state.size(); ++i) {
    gone_ = going_.copy(piece.state[i], here.state[i], updated, {}, send);
  }
  place.free = gone_;
}

}  // namespace ringtrain
