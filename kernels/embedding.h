// Table look-up by token or position. ids: int32 [T], each in [0, rows); table, dtable: [rows, C]; y, dy: [T, C]. All
// have one dtype, except that dtable has its accumulator. On the CPU, an id out of range is an Error(internal) before
// any memory is touched. On a GPU, ids are not checked: DeviceBatch has checked them on the host.
#pragma once

#include "framework/const_tensor_view.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

/// y[t] = table[ids[t]], or += if accumulate.
void embedding_forward(Stream& stream, const TensorView& y, const ConstTensorView& ids, const ConstTensorView& table,
                       bool accumulate);
/// dtable[ids[t]] += dy[t], tokens in order (cut by columns, so that no two tasks add to the same element).
void embedding_backward(Stream& stream, const TensorView& dtable, const ConstTensorView& ids,
                        const ConstTensorView& dy);

}  // namespace ringtrain
