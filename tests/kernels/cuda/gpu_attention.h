// What the tests of attention on a GPU share: a device (emulated or real), tensors on it followed by a guard, a case
// (shape, mask, one rank's queries and the key blocks that they meet), its inputs, one run of the kernels on it, and
// the comparison with the references in double.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "framework/cuda/check.h"
#include "framework/cuda/context.h"
#include "framework/random.h"
#include "framework/system/compute_device.h"
#include "kernels/attention.h"
#include "tests/kernels/attention_case.h"
#include "tests/support/attention_state.h"
#include "tests/support/elements.h"
#include "tests/support/gpu.h"
#include "tests/support/rounded_attention.h"

namespace ringtrain::gpu {

using Numbers = std::vector<double>;

/// A device with its stream.
struct Gpu {
  Allocator allocator{Device::cuda(0)};
  ThreadPool pool{1};
  ComputeDevice device{allocator, pool, nullptr};
  Stream& stream() { return device.stream(); }
};

/// A tensor on the device, filled with a pattern that is NaN as float and as bfloat16, and followed by a guard of it.
class DeviceTensor {
 public:
  DeviceTensor(Gpu& gpu, DType dtype, const Shape& shape)
      : bytes_(static_cast<std::size_t>(shape.numel()) * size_of(dtype)),
        memory_(gpu.allocator.make(Tag::workspace, "test", DType::uint8, {static_cast<std::int64_t>(bytes_ + guard)})),
        view_{memory_.view().data, shape, dtype, Device::cuda(0)},
        gpu_(&gpu) {
    // On the stream that uses it, because the default stream is not ordered with that one.
    cuda::check(cudaMemsetAsync(memory_.view().data, 0xFF, bytes_ + guard, gpu.stream().cuda().stream()),
                "poisoning a test's tensor");
  }
  DeviceTensor(Gpu& gpu, DType dtype, const Shape& shape, const Numbers& values) : DeviceTensor(gpu, dtype, shape) {
    std::vector<std::byte> host(bytes_);
    const TensorView on_host{host.data(), shape, dtype, Device::cpu()};
    for (std::int64_t i = 0; i < std::ssize(values); ++i) testing::set_element(on_host, i, values[i]);
    cuda::check(cudaMemcpyAsync(view_.data, host.data(), bytes_, cudaMemcpyHostToDevice, gpu.stream().cuda().stream()),
                "filling a test's tensor");
    gpu.stream().synchronize();  // the host's copy is freed
  }
  operator const TensorView&() const { return view_; }
  operator ConstTensorView() const { return view_; }
  const TensorView& view() const { return view_; }

  /// Returns the content after the device has finished its work; expects an unchanged guard.
  Numbers read() const {
    std::vector<std::byte> host = bytes();
    return testing::elements(TensorView{host.data(), view_.shape, view_.dtype, Device::cpu()});
  }

  /// Expects an unchanged guard after the device has finished its work.
  void expect_guard() const { bytes(); }

 private:
  static constexpr std::size_t guard = 256;
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> host(bytes_ + guard);
    cuda::check(
        cudaMemcpyAsync(host.data(), view_.data, host.size(), cudaMemcpyDeviceToHost, gpu_->stream().cuda().stream()),
        "reading a test's tensor");
    gpu_->stream().synchronize();
    EXPECT_TRUE(std::all_of(host.begin() + static_cast<std::ptrdiff_t>(bytes_), host.end(), [](std::byte x) {
      return x == std::byte{0xFF};
    })) << "written behind a tensor's end";
    return host;
  }
  std::size_t bytes_;
  Tensor memory_;
  TensorView view_;
  Gpu* gpu_;
};

/// Sets the emulator's devices, in a fresh state; does nothing on a real GPU.
inline void use_devices([[maybe_unused]] int capability, [[maybe_unused]] int multiprocessors) {
#if defined(RINGTRAIN_CUDA_EMULATED)
  cuda_emulator::reset();
  cuda_emulator::set_devices({1, capability, multiprocessors, std::size_t{1} << 30});
#endif
}

/// A case for this folder's kernels. Inputs are functions of (sequence, position), so that the same tokens have the
/// same numbers for any sharding.
struct Case : AttentionCase {
  Case(AttentionCase c) : AttentionCase(std::move(c)) {}
  Case(std::string of_name, const AttentionShape& of_shape, SegmentList of_queries, std::vector<SegmentList> of_blocks,
       std::int64_t of_documents = 0)
      : AttentionCase{std::move(of_name), of_shape, std::move(of_queries), std::move(of_blocks), of_documents} {}
  bool first = true, last = true;               // whether the ends are passed as phases, or reset and finish are called
  std::int64_t planted = -1, planted_end = -1;  // keys and values at these positions are NaN on the device
};

/// Returns [B, T, heads, D] of normals for these tokens, rounded to dtype; another seed gives other numbers.
inline Numbers inputs_of(const Case& c, DType dtype, const SegmentList& segments, std::int64_t heads,
                         std::uint64_t seed) {
  Numbers x;
  for (std::int64_t b = 0; b < c.shape.B; ++b) {
    for (std::int64_t position : positions_of(segments)) {
      for (std::int64_t i = 0; i < heads * c.shape.D; ++i) {
        const auto index = static_cast<std::uint64_t>(((position % 100000) * c.shape.B + b) * heads * c.shape.D + i);
        const double value = random_normal(seed, Purpose::test, index);
        x.push_back(dtype == DType::bfloat16 ? reference::rounded(value)
                                             : static_cast<double>(static_cast<float>(value)));
      }
    }
  }
  return x;
}

/// Returns the keys or values of a block with NaN at the case's planted positions.
inline Numbers planted_in(const Case& c, const SegmentList& block, Numbers x) {
  const auto positions = positions_of(block);
  const auto row = static_cast<std::size_t>(c.shape.G * c.shape.D);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::int64_t position = positions[i / row % positions.size()];
    if (position >= c.planted && position < c.planted_end) x[i] = NAN;
  }
  return x;
}

struct Outputs {
  Numbers out, lse, dq;
  std::vector<Numbers> dk, dv;  // one per block
};

/// Tokens of a shard on the device.
class DeviceTokens {
 public:
  DeviceTokens(Gpu& gpu, const Case& c, const SegmentList& segments) : segments_(segments) {
    if (c.document_length == 0) return;
    const reference::Tokens tokens = Shard(c, segments).of_reference;
    documents_.push_back(DeviceTensor(gpu, DType::int32, {c.shape.B, token_count(segments)},
                                      Numbers(tokens.documents.begin(), tokens.documents.end())));
  }
  operator AttentionTokens() const { return {segments_, documents_.empty() ? TensorView{} : documents_[0].view()}; }

 private:
  SegmentList segments_;
  std::vector<DeviceTensor> documents_;  // one, or none
};

/// Runs forward for all blocks, then backward for all. dk and dv of a block are added to those of `begun`, if any;
/// otherwise they begin with the call, in memory filled with NaN; dq begins with zeros.
inline Outputs run(Gpu& gpu, const Case& c, DType dtype, const Outputs* begun = nullptr) {
  Stream& stream = gpu.stream();
  const AttentionShape& s = c.shape;
  const std::int64_t Tq = token_count(c.queries);
  const Shape by_token{s.B, Tq, s.H, s.D}, by_row{s.B, s.H, Tq};
  const DeviceTokens queries(gpu, c, c.queries);
  const DeviceTensor q(gpu, dtype, by_token, inputs_of(c, dtype, c.queries, s.H, 1));
  const DeviceTensor dout(gpu, dtype, by_token, inputs_of(c, dtype, c.queries, s.H, 2));
  const DeviceTensor out(gpu, dtype, by_token), lse(gpu, DType::float32, by_row), delta(gpu, DType::float32, by_row);
  const DeviceTensor o(gpu, DType::float32, by_token), m(gpu, DType::float32, by_row), l(gpu, DType::float32, by_row);
  std::vector<DeviceTensor> k, v, dk, dv;
  std::vector<DeviceTokens> keys;
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < c.blocks.size(); ++i) {
    const std::int64_t Tk = token_count(c.blocks[i]);
    const Shape kv{s.B, Tk, s.G, s.D};
    longest = std::max(longest, Tk);
    keys.emplace_back(gpu, c, c.blocks[i]);
    k.emplace_back(gpu, dtype, kv, planted_in(c, c.blocks[i], inputs_of(c, dtype, c.blocks[i], s.G, 3)));
    v.emplace_back(gpu, dtype, kv, planted_in(c, c.blocks[i], inputs_of(c, dtype, c.blocks[i], s.G, 4)));
    const Numbers nothing(static_cast<std::size_t>(kv.numel()), NAN);
    dk.emplace_back(gpu, DType::float32, kv, begun ? begun->dk[i] : nothing);
    dv.emplace_back(gpu, DType::float32, kv, begun ? begun->dv[i] : nothing);
  }
  const std::size_t bytes = attention_workspace_bytes(stream, s, dtype, Tq, longest);
  const DeviceTensor workspace(gpu, DType::uint8, {static_cast<std::int64_t>(bytes)});
  const AttentionState state{o, m, l};
  if (!c.first) testing::reset_state(stream, state);
  for (std::size_t i = 0; i < c.blocks.size(); ++i) {
    AttentionPhase phase{c.first && i == 0, c.last && i + 1 == c.blocks.size(), {}, {}};
    if (phase.finalize) {
      phase.out = out;
      phase.lse = lse;
    }
    attention_forward(stream, s, q, k[i], v[i], queries, keys[i], state, phase, workspace);
  }
  if (!c.last) attention_finalize(stream, state, out, lse);
  attention_delta(stream, delta, dout, out);
  const DeviceTensor dq(gpu, DType::float32, by_token, Numbers(static_cast<std::size_t>(by_token.numel()), 0.0));
  for (std::size_t i = 0; i < c.blocks.size(); ++i) {
    attention_backward(stream, s, q, k[i], v[i], dout, lse, delta, queries, keys[i], dq, dk[i], dv[i], workspace,
                       /*accumulate=*/begun != nullptr);
  }
  Outputs outputs{out.read(), lse.read(), dq.read(), {}, {}};
  for (std::size_t i = 0; i < c.blocks.size(); ++i) {
    outputs.dk.push_back(dk[i].read());
    outputs.dv.push_back(dv[i].read());
  }
  workspace.expect_guard();
  return outputs;
}

inline void expect_same(const Outputs& a, const Outputs& b) {
  const auto same = [](const Numbers& x, const Numbers& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0;
  };
  EXPECT_TRUE(same(a.out, b.out) && same(a.lse, b.lse)) << "forward";
  EXPECT_TRUE(same(a.dq, b.dq)) << "dq";
  for (std::size_t i = 0; i < a.dk.size(); ++i) {
    EXPECT_TRUE(same(a.dk[i], b.dk[i]) && same(a.dv[i], b.dv[i])) << "dk, dv";
  }
}

/// The expected results of a case: exact, and with bfloat16's rounding.
struct Expected {
  reference::Forward forward;
  reference::Backward backward;
  reference::Rounded rounded;  // of bfloat16 only
};

inline Expected expected_of(const Case& c, DType dtype) {
  const AttentionShape& s = c.shape;
  const reference::Attention a{s.B, s.H, s.G, s.D, s.scale, s.mask.causal, s.mask.window, s.softcap, {}};
  const SegmentList all = all_keys(c);
  const reference::Tokens queries = Shard(c, c.queries).of_reference, keys = Shard(c, all).of_reference;
  const Numbers q = inputs_of(c, dtype, c.queries, s.H, 1), dout = inputs_of(c, dtype, c.queries, s.H, 2);
  const Numbers k = inputs_of(c, dtype, all, s.G, 3), v = inputs_of(c, dtype, all, s.G, 4);
  Expected expected{reference::forward(a, q, k, v, queries, keys), {}, {}};
  expected.backward = reference::backward(a, q, k, v, expected.forward.out, dout, queries, keys);
  if (dtype == DType::bfloat16) expected.rounded = reference::rounded_attention(a, q, k, v, dout, queries, keys);
  return expected;
}

/// Root mean square and maximum of the differences, and the largest number of the second; NaN if there is one.
struct Difference {
  double rms = 0, most = 0, largest = 0;
};
inline Difference difference(const Numbers& x, const Numbers& exact) {
  Difference result;
  if (x.size() != exact.size()) return {NAN, NAN, NAN};
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == exact[i]) continue;  // infinities too
    const double apart = std::abs(x[i] - exact[i]);
    if (!std::isfinite(apart)) return {NAN, NAN, NAN};
    squares += apart * apart;
    result.most = std::max(result.most, apart);
    result.largest = std::max(result.largest, std::abs(exact[i]));
  }
  for (double e : exact) result.largest = std::isinf(e) ? result.largest : std::max(result.largest, std::abs(e));
  result.rms = x.empty() ? 0 : std::sqrt(squares / static_cast<double>(x.size()));
  return result;
}

/// float32: max|difference| / max|exact| is at most this. Gradients that are 0 everywhere (each row sees one key) are
/// compared relative to the inputs' size, which is 1.
constexpr double float32_tolerance = 1e-5;

inline void expect_exact(const Numbers& x, const Numbers& exact, const std::string& what) {
  const Difference d = difference(x, exact);
  EXPECT_LE(d.most, float32_tolerance * std::max(d.largest, d.largest == 0 ? 1.0 : 0.0)) << what;
}

/// bfloat16: the error of rounding only, times 1.5 (rms) and 2 (maximum); if rounding has no effect, the error of a
/// tensor core's sums. It aligns and truncates 16 products and the current sum, toward zero: 2^-23 of the sum's
/// magnitude for each of D/16 steps. If dS = P (dP - delta) is 0 in exact sums (each row sees one key), dP and delta
/// are summed in two ways: for D = 128 a difference of 8 * 2^-23 * |dP| with |dP| about sqrt(D), times a key of size 1,
/// at most 1.1e-5. Random draws of such rounding gave a median of 1.7e-6 and a maximum of 3.3e-6.
inline void expect_rounded(const Numbers& x, const Numbers& exact, const Numbers& rounded, const std::string& what) {
  const Difference d = difference(x, exact), allowed = difference(rounded, exact);
  const double sums = 1e-5 * std::max(1.0, d.largest);
  EXPECT_LE(d.rms, 1.5 * allowed.rms + sums) << what << ", rms";
  EXPECT_LE(d.most, 2 * allowed.most + sums) << what << ", maximum";
}

inline void check(Gpu& gpu, const Case& c, DType dtype) {
  SCOPED_TRACE(c.name + (dtype == DType::bfloat16 ? ", bfloat16" : ", float32"));
  const Outputs got = run(gpu, c, dtype);
  const Expected e = expected_of(c, dtype);
  const Numbers dk = joined(c, got.dk), dv = joined(c, got.dv);
  expect_exact(got.lse, e.forward.lse, "lse");
  if (dtype == DType::float32) {
    expect_exact(got.out, e.forward.out, "out");
    expect_exact(got.dq, e.backward.dq, "dq");
    expect_exact(dk, e.backward.dk, "dk");
    expect_exact(dv, e.backward.dv, "dv");
  } else {
    expect_rounded(got.out, e.forward.out, e.rounded.out, "out");
    expect_rounded(got.dq, e.backward.dq, e.rounded.dq, "dq");
    expect_rounded(dk, e.backward.dk, e.rounded.dk, "dk");
    expect_rounded(dv, e.backward.dv, e.rounded.dv, "dv");
  }
}

}  // namespace ringtrain::gpu
