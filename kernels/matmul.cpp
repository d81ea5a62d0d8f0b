// Matrix products on the CPU: Eigen's single-threaded products on fixed tiles of the output, spread over the pool.
#include "kernels/matmul.h"

// GCC 12 takes the undefined operand of its own AVX-512 intrinsics for a mistake (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

#include "kernels/check.h"
#include "kernels/cpu/loops.h"

namespace ringtrain {

namespace {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using Map = Eigen::Map<Matrix<T>>;
template <class T>
using ConstMap = Eigen::Map<const Matrix<T>>;

/// Calls body(row, column, rows, columns) for all tiles of an output.
template <class Body>
void for_tiles(ThreadPool& pool, std::int64_t rows, std::int64_t columns, std::int64_t tile_rows,
               std::int64_t tile_columns, Body&& body) {
  const std::int64_t across = (columns + tile_columns - 1) / tile_columns, down = (rows + tile_rows - 1) / tile_rows;
  pool.run(down * across, [&](std::int64_t task, int) {
    const std::int64_t row = task / across * tile_rows, column = task % across * tile_columns;
    body(row, column, std::min(tile_rows, rows - row), std::min(tile_columns, columns - column));
  });
}

struct Sizes {
  std::int64_t T, I, O;
};

Sizes check_call(const TensorView& x, const TensorView& w, const TensorView& y, const TensorView& bias) {
  ensure(x.shape.rank() == 2 && w.shape.rank() == 2, "a linear layer's x is [T, I] and its w [O, I]");
  const Sizes sizes{x.dim(0), x.dim(1), w.dim(0)};
  check_tensor(w, {sizes.O, sizes.I}, x.dtype, "a linear layer's w is [O, I]");
  check_tensor(y, {sizes.T, sizes.O}, x.dtype, "a linear layer's y is [T, O]");
  if (!bias.empty()) check_tensor(bias, {sizes.O}, x.dtype, "a linear layer's bias is [O]");
  return sizes;
}

}  // namespace

void linear_forward(Stream& stream, const TensorView& y, const TensorView& x, const TensorView& w,
                    const TensorView& bias) {
  require_cpu(stream, "matmul");
  const auto [T, I, O] = check_call(x, w, y, bias);
  dispatch_float(x.dtype, [&, T = T, I = I, O = O]<class R>() {
    const ConstMap<R> xm(x.as<R>(), T, I), wm(w.as<R>(), O, I);
    Map<R> ym(y.as<R>(), T, O);
    const R* const b = bias.empty() ? nullptr : bias.as<R>();
    for_tiles(stream.pool(), T, O, 256, 256, [&](auto t, auto o, auto rows, auto columns) {
      auto to = ym.block(t, o, rows, columns);
      if (b != nullptr) {
        to.rowwise() = Eigen::Map<const Eigen::Matrix<R, 1, Eigen::Dynamic>>(b + o, columns);
      } else {
        to.setZero();
      }
      to.noalias() += xm.middleRows(t, rows) * wm.middleRows(o, columns).transpose();
    });
  });
}

void linear_backward_input(Stream& stream, const TensorView& dx, const TensorView& dy, const TensorView& w,
                           bool accumulate) {
  require_cpu(stream, "matmul");
  const auto [T, I, O] = check_call(dx, w, dy, {});
  dispatch_float(dx.dtype, [&, T = T, I = I, O = O]<class R>() {
    const ConstMap<R> dym(dy.as<R>(), T, O), wm(w.as<R>(), O, I);
    Map<R> dxm(dx.as<R>(), T, I);
    for_tiles(stream.pool(), T, I, 256, 256, [&](auto t, auto i, auto rows, auto columns) {
      auto to = dxm.block(t, i, rows, columns);
      if (!accumulate) to.setZero();
      to.noalias() += dym.middleRows(t, rows) * wm.middleCols(i, columns);
    });
  });
}

void linear_backward_weight(Stream& stream, const TensorView& dw, const TensorView& dbias, const TensorView& dy,
                            const TensorView& x) {
  require_cpu(stream, "matmul");
  const auto [T, I, O] = check_call(x, dw, dy, dbias);
  dispatch_float(x.dtype, [&, T = T, I = I, O = O]<class R>() {
    const ConstMap<R> xm(x.as<R>(), T, I), dym(dy.as<R>(), T, O);
    Map<R> dwm(dw.as<R>(), O, I);
    for_tiles(stream.pool(), O, I, 128, 128, [&](auto o, auto i, auto rows, auto columns) {
      dwm.block(o, i, rows, columns).noalias() += dym.middleCols(o, rows).transpose() * xm.middleCols(i, columns);
    });
    if (dbias.empty()) return;
    R* const to = dbias.as<R>();
    const R* const from = dy.as<R>();
    cpu::sum_rows_into(stream.pool(), T, O, to, [=](std::int64_t t, auto at) { return at(from + t * O); });
  });
}

}  // namespace ringtrain
