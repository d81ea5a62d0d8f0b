// Table look-up on the CPU. Forward is parallel over tokens, backward over columns: each element of the table gets its
// tokens' gradients in token order, for any number of threads.
#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/cpu/loops.h"
#include "kernels/cuda/cuda_kernels.h"

namespace ringtrain {

namespace {

void check_call(const ConstTensorView& y, const ConstTensorView& ids, const ConstTensorView& table, DType table_dtype) {
  ensure(table.shape.rank() == 2, "embedding table is [rows, C]");
  check_tensor(ids, {ids.numel()}, DType::int32, "embedding ids are int32 [T]");
  check_tensor(y, {ids.numel(), table.dim(1)}, y.dtype, "embedding y is [T, C]");
  ensure(table.dtype == table_dtype, "embedding table is of y's dtype, dtable of its accumulator");
}

}  // namespace

void embedding_forward(Stream& stream, const TensorView& y, const ConstTensorView& ids, const ConstTensorView& table,
                       bool accumulate) {
  check_call(y, ids, table, y.dtype);
  const std::int64_t C = table.dim(1);
  if (stream.on_cuda()) return cuda::embedding_forward(stream, y, ids, table, accumulate);
  check_ids(ids, table.dim(0), "embedding ids are rows of the table");
  dispatch_dtype(table.dtype, [&]<class S, class A>() {
    S* const y_data = y.as<S>();
    const S* const table_data = table.as<S>();
    const auto* const id = ids.as<std::int32_t>();
    cpu::for_rows(stream.pool(), ids.numel(), C, [=](std::int64_t t) {
      S* const to = y_data + t * C;                  // [C]
      const S* const from = table_data + id[t] * C;  // [C]
      if (!accumulate) {
        std::copy_n(from, C, to);
      } else {
        cpu::for_vectors<A>(0, C, [=](auto at) { at.put(to, at(to) + at(from)); });
      }
    });
  });
}

void embedding_backward(Stream& stream, const TensorView& dtable, const ConstTensorView& ids,
                        const ConstTensorView& dy) {
  check_call(dy, ids, dtable, accumulator(dy.dtype));
  const std::int64_t C = dtable.dim(1), tokens = ids.numel();
  constexpr std::int64_t columns = 64;
  if (stream.on_cuda()) return cuda::embedding_backward(stream, dtable, ids, dy);
  check_ids(ids, dtable.dim(0), "embedding ids are rows of the table");
  dispatch_dtype(dy.dtype, [&]<class S, class A>() {
    A* const dtable_data = dtable.as<A>();
    const S* const dy_data = dy.as<S>();
    const auto* const id = ids.as<std::int32_t>();
    cpu::for_chunks(stream.pool(), C, columns, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        A* const to = dtable_data + id[t] * C;  // [C]
        const S* const from = dy_data + t * C;  // [C]
        cpu::for_vectors<A>(begin, end, [=](auto at) { at.put(to, at(to) + at(from)); });
      }
    });
  });
}

}  // namespace ringtrain
