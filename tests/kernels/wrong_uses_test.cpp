// Wrong uses of tensors and kernels by another program: each ends in a message that begins with the caller's line, and
// names the argument, what it is, and what it must be.
#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "tests/support/error_of.h"

namespace ringtrain::testing {
namespace {

// A constant view is as cheap to pass as any other, and nothing converts it to a writable one.
static_assert(std::is_trivially_copyable_v<TensorView> && std::is_trivially_copyable_v<ConstTensorView>);
static_assert(std::is_same_v<decltype(host_view(static_cast<float*>(nullptr), {})), TensorView>);
static_assert(std::is_same_v<decltype(host_view(static_cast<const float*>(nullptr), {})), ConstTensorView>);

class WrongUses : public ::testing::Test {
 protected:
  /// Returns a view on the device of the stream that is called.
  TensorView view(const Shape& shape) { return {values.data(), shape, DType::float32, called->device()}; }
  TensorView doubles(const Shape& shape) { return host_view(wide.data(), shape); }

  ThreadPool pool{1};
  Stream stream{pool}, gpu{nullptr, Device::cuda(0), pool, nullptr};
  Stream* called = &stream;
  std::vector<float> values = std::vector<float>(4096);
  std::vector<double> wide = std::vector<double>(4096);
};

TEST_F(WrongUses, AnotherTypeOfElementsIsNamedWithTheTensors) {
  expect_refused("a float32 tensor [2, 3] is read as float64", [&] { view({2, 3}).as<double>(); });
  expect_refused("a float32 tensor [2, 3] is read as int32", [&] { ConstTensorView(view({2, 3})).as<std::int32_t>(); });
}

TEST_F(WrongUses, APartOutsideOfATensorIsNamed) {
  const TensorView x = view({4, 6});
  expect_refused("a tensor [4, 6] has no rows [3, 5)", [&] { x.rows(3, 5); });
  expect_refused("a tensor [4, 6] has no rows [4, 5)", [&] { x.select(4); });
  expect_refused("a tensor [4, 6] of 24 elements has no elements [20, 25)", [&] { x.flat(20, 25); });
  expect_refused("a tensor [4, 6] of 24 elements cannot be viewed as [5, 5], which has 25", [&] {
    ConstTensorView(x).reshape({5, 5});
  });
  expect_refused("a tensor [4, 6] of 24 elements is too small to be viewed as [25], which has 25",
                 [&] { x.prefix({25}); });
  expect_refused("a shape has 6 dimensions, but may have at most 5", [&] { view(Shape{1, 1, 1, 1, 1, 1}); });
  expect_refused("dimension 1 of a shape is -3, but must be 0 or more", [&] { view(Shape{2, -3}); });
}

TEST_F(WrongUses, TheShapeOfAProductIsNamedByDimension) {
  const auto refuse = [&](const std::string& says, const Shape& y, const Shape& x, const Shape& w,
                          const TensorView& bias = {}, const TensorView& residual = {}) {
    expect_refused(says, [&] { linear_forward(stream, view(y), view(x), view(w), bias, residual); });
  };
  refuse("w has the shape [3, 4], but must have [O = 4, I = 3]", {2, 4}, {2, 3}, {3, 4});
  refuse("x has the shape [2, 3, 1], but must have [T, I]", {2, 4}, {2, 3, 1}, {4, 3});
  refuse("y has the shape [3, 4], but must have [T = 2, O]", {3, 4}, {2, 3}, {4, 3});
  refuse("bias has the shape [3], but must have [O = 4]", {2, 4}, {2, 3}, {4, 3}, view({3}));
  refuse("residual has the shape [2, 3], but must have [T = 2, O = 4]", {2, 4}, {2, 3}, {4, 3}, {}, view({2, 3}));
  refuse("a bias must not be given if residual is y", {2, 4}, {2, 3}, {4, 3}, view({4}), view({2, 4}));
  expect_refused("dw has the shape [3, 4], but must have [O = 4, I = 3]", [&] {
    linear_backward_weight(stream, view({3, 4}), {}, view({2, 4}), view({2, 3}), false);
  });
}

TEST_F(WrongUses, ADTypeIsNamedApartFromTheShape) {
  std::vector<std::int32_t> integers(64);
  expect_refused("w has dtype float64, but must have dtype float32", [&] {
    linear_forward(stream, view({2, 4}), view({2, 3}), doubles({4, 3}), {});
  });
  expect_refused("x has dtype int32, not float32, float64 or bfloat16", [&] {
    linear_forward(stream, view({2, 4}), host_view(integers.data(), {2, 3}), view({4, 3}), {});
  });
  expect_refused("x has dtype int32, not float32, float64 or bfloat16",
                 [&] { fill(stream, host_view(integers.data(), {2}), 0); });
  expect_refused("x has dtype int32, but must have that of y, float32",
                 [&] { copy(stream, view({2}), host_view(integers.data(), {2})); });
  expect_refused("x has dtype float64, but must have that of y, float32",
                 [&] { add(stream, view({4}), doubles({4})); });
  expect_refused("convert works between float32 and bfloat16, but x is float64 and y is float32",
                 [&] { convert(stream, view({4}), doubles({4})); });
}

TEST_F(WrongUses, AnotherDeviceAndNoMemoryAreNamed) {
  TensorView elsewhere = view({4, 3});
  elsewhere.device = Device::cuda(1);
  const TensorView nothing{nullptr, {4, 3}, DType::float32, Device::cpu()};
  expect_refused("w is on cuda:1, but must be on cpu", [&] {
    linear_forward(stream, view({2, 4}), view({2, 3}), elsewhere, {});
  });
  expect_refused("x is on cuda:1, but must be on cpu", [&] { copy(stream, view({12}), elsewhere); });
  expect_refused("x is on cuda:1, but must be on cuda:0", [&] { scale(gpu, elsewhere, 2); });
  expect_refused("x is on cpu, but must be on cuda:0", [&] {
    linear_forward(gpu, view({2, 4}), view({2, 3}), view({4, 3}), {});
  });
  expect_refused("y is null, but must have memory for 12 elements", [&] { copy(stream, nothing, view({12})); });
  expect_refused("x is null, but must have memory for 12 elements", [&] { scale(stream, nothing, 2); });
}

TEST_F(WrongUses, SizesOfFlatTensorsAreNamed) {
  expect_refused("x [4] has 4 elements, but must have as many as y [2, 3], 6", [&] {
    add(stream, view({2, 3}), view({4}));
  });
  expect_refused("x [4] has 4 elements, but must have as many as y [2, 3], 6", [&] {
    copy(stream, view({2, 3}), view({4}));
  });
  expect_refused("gate has the shape [3, 2], but must have that of y, [2, 3]", [&] {
    activation_forward(stream, Activation::silu, view({2, 3}), view({3, 2}), view({2, 3}));
  });
  expect_refused("result has the shape [2], but must have [1]",
                 [&] { sum_of_squares(stream, doubles({2}), view({3}), false); });
}

TEST_F(WrongUses, TheShapesOfANormAndOfRotaryPositionsAreNamed) {
  std::vector<std::int32_t> positions(5);
  expect_refused("w has the shape [4], but must have [C = 3]", [&] {
    norm_forward(stream, view({2, 3}), {}, view({2}), view({2, 3}), view({4}), {}, 1e-5);
  });
  expect_refused("mean has the shape [3], but must have [T = 2]", [&] {
    norm_forward(stream, view({2, 3}), view({3}), view({2}), view({2, 3}), view({3}), view({3}), 1e-5);
  });
  expect_refused("db has the shape [2], but must have [C = 3]", [&] {
    norm_backward(stream, view({2, 3}), {}, view({2}), view({2, 3}), view({2, 3}), view({3}), view({2}), view({2}),
                  false);
  });
  expect_refused("mean has the shape [], but must have [T = 2]", [&] {
    norm_backward(stream, view({2, 3}), {}, view({3}), view({2, 3}), view({2, 3}), view({3}), {}, view({2}), false);
  });
  expect_refused("x has the shape [5, 2, 3]: D = 3 must be even", [&] {
    rope_forward(stream, view({5, 2, 3}), view({5, 3}));
  });
  expect_refused("the dimension D is 3, but must be even and at least 2", [&] { rope_frequencies(3, 1e4, {}); });
  expect_refused("table has the shape [5, 6], but must have [T = 5, D = 4]", [&] {
    rope_table(stream, view({5, 6}), host_view(positions.data(), {5}), rope_frequencies(4, 1e4, {}));
  });
}

TEST_F(WrongUses, TheTensorsOfAttentionAreNamed) {
  AttentionShape shape{.B = 1, .H = 4, .G = 2, .D = 8, .scale = 0.5, .mask = {}};
  SegmentList segments{{0, 1, 5}};
  const Shape q{1, 5, 4, 8}, rows{1, 4, 5};
  Shape k{1, 5, 2, 8}, m = rows;
  std::vector<std::uint8_t> small(15);
  const auto refuse = [&](const std::string& says) {
    const AttentionTokens tokens{segments, {}};
    const AttentionState state{view(q), view(m), view(rows)};
    const TensorView workspace = host_view(small.data(), {15});
    expect_refused(says, [&] {
      attention_forward(*called, shape, view(q), view(k), view(k), tokens, tokens, state, {}, workspace);
    });
  };
  for (Stream* const each : {&gpu, &stream}) {
    called = each;
    refuse("workspace has 15 bytes, but must have at least attention_workspace_bytes = " +
           std::to_string(attention_workspace_bytes(*called, shape, DType::float32, 5, 5)));
  }
  m = {1, 5, 4};
  refuse("state.m has the shape [1, 5, 4], but must have [B = 1, H = 4, Tq = 5]");
  k = q;
  refuse("k has the shape [1, 5, 4, 8], but must have [B = 1, Tk = 5, G = 2, D = 8]");
  segments = SegmentList(17);
  refuse("queries.segments has 17 segments, but may have at most 16: join those that continue each other");
  segments = {{0, 1 << 20, 5}};
  refuse("queries.segments has the stride 1048576, but a stride must be from 1 to 1048575");
  segments = {{0, 1, 4}, {3, 1, 1}};
  refuse("queries.segments has the position 3 after 3, but positions must increase from 0");
  shape.scale = 0;
  refuse("AttentionShape::scale is 0, but must be finite and above 0");
  shape.G = 3;
  refuse(
      "an AttentionShape of B = 1, H = 4, G = 3, D = 8: B must be 0 or more, H, G and D 1 or more, and H a multiple of "
      "G");
}

}  // namespace
}  // namespace ringtrain::testing
