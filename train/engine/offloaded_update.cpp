#include "train/engine/offloaded_update.h"

#include <algorithm>
#include <string>

namespace ringtrain {

OffloadedUpdate::OffloadedUpdate(Allocator& allocator, Stream& stream, bool masters, DType moments,
                                 std::int64_t elements) {
  const std::int64_t piece = std::min(elements, piece_elements);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const auto make = [&](const std::string& what, DType type) {
      return allocator.make(Tag::workspace, fmt::format("optimizer piece {} {}", i, what), type, {piece});
    };
    if (masters) slots_[i].w = make("weights", DType::float32);
    slots_[i].m = make("first moment", moments);
    slots_[i].v = make("second moment", moments);
  }
  if (allocator.planning()) return;
  coming_.set_stream(stream);
  going_.set_stream(stream);
}

void OffloadedUpdate::run(Stream& stream, std::span<const AdamWSlice> slices, const AdamW& hyper) {
  const CopyStream::Event begun = coming_.record();
  std::size_t next = 0;
  for (const AdamWSlice& slice : slices) {
    for (std::int64_t begin = 0; begin < slice.w.numel(); begin += piece_elements) {
      const std::int64_t end = std::min(slice.w.numel(), begin + piece_elements);
      const AdamWSlice piece{.w = slice.w.flat(begin, end),
                             .m = slice.m.flat(begin, end),
                             .v = slice.v.flat(begin, end),
                             .g = slice.g.flat(begin, end),
                             .rounded = slice.rounded.empty() ? TensorView{} : slice.rounded.flat(begin, end),
                             .weight_decay = slice.weight_decay,
                             .first_element = slice.first_element + static_cast<std::uint64_t>(begin)};
      update(stream, slots_[next++ % slots_.size()], piece, hyper, begun);
    }
  }
  going_.wait(gone_);
}

void OffloadedUpdate::update(Stream& stream, Slot& slot, const AdamWSlice& piece, const AdamW& hyper,
                             const CopyStream::Event& begun) {
  const bool master = !piece.rounded.empty();  // otherwise the weights are the model's, on the device
  AdamWSlice here = piece;
  if (master) here.w = slot.w.view().prefix(piece.w.shape);
  here.m = slot.m.view().prefix(piece.m.shape);
  here.v = slot.v.view().prefix(piece.v.shape);

  // The copies in each direction run one after another, so the end of the last one is the end of all.
  const CopyStream::Label fetch{.name = "optimizer state from host memory"};
  const CopyStream::Label send{.name = "optimizer state to host memory"};
  if (master) coming_.copy(here.w, piece.w, begun, slot.free, fetch);
  coming_.copy(here.m, piece.m, begun, slot.free, fetch);
  coming_.wait(coming_.copy(here.v, piece.v, begun, slot.free, fetch));
  adamw_update(stream, {&here, 1}, hyper);
  const CopyStream::Event updated = going_.record();
  if (master) going_.copy(piece.w, here.w, updated, {}, send);
  going_.copy(piece.m, here.m, updated, {}, send);
  gone_ = going_.copy(piece.v, here.v, updated, {}, send);
  slot.free = gone_;
}

}  // namespace ringtrain
