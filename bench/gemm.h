// The reference rate: a large square matrix product, in which each thread multiplies its own matrices with one
// single-threaded call, by Eigen or (if it was found) oneDNN. Kernels are compared with the rate of this product on the
// machine. Not thread-safe; operands are made once and used for all calls.
#pragma once

#include <Eigen/Dense>
#include <cstdint>
#include <vector>

#ifdef RINGTRAIN_ONEDNN
#include <dnnl.h>
#include <omp.h>
#endif

#include "framework/error.h"
#include "framework/thread_pool.h"

namespace ringtrain::bench {

enum class Library { eigen, onednn };

#ifdef RINGTRAIN_ONEDNN
inline constexpr bool has_onednn = true;
#else
inline constexpr bool has_onednn = false;
#endif

/// C[n, n] = A[n, n] B[n, n] in float32 on every worker of a pool at once.
class Gemm {
 public:
  static constexpr std::int64_t size = 2048;

  explicit Gemm(ThreadPool& pool) : pool_(pool) {
    for (int i = 0; i < pool.workers(); ++i) {
      a_.push_back(Matrix::Random(size, size)), b_.push_back(Matrix::Random(size, size));
      c_.push_back(Matrix::Zero(size, size));
    }
  }

  /// Returns the floating-point operations of one run, of all workers.
  double flops() const { return 2.0 * size * size * size * pool_.workers(); }

  void run(Library library) {
    pool_.run(pool_.workers(), [&](std::int64_t i, int) {
      const auto n = static_cast<std::size_t>(i);
      if (library == Library::eigen) {
        c_[n].noalias() = a_[n] * b_[n];
      } else {
        onednn(a_[n], b_[n], c_[n]);
      }
    });
  }

 private:
  using Matrix = Eigen::MatrixXf;

  static void onednn(const Matrix& a, const Matrix& b, Matrix& c) {
#ifdef RINGTRAIN_ONEDNN
    omp_set_num_threads(1);  // for this thread's calls
    // Its matrices have contiguous rows, so this is the transposed product of the same numbers.
    const dnnl_status_t status =
        dnnl_sgemm('N', 'N', size, size, size, 1, b.data(), size, a.data(), size, 0, c.data(), size);
    ensure(status == dnnl_success, "oneDNN's product works");
#else
    (void)a, (void)b, (void)c;
    ensure(false, "oneDNN is part of this build");
#endif
  }

  ThreadPool& pool_;
  std::vector<Matrix> a_, b_, c_;
};

}  // namespace ringtrain::bench
