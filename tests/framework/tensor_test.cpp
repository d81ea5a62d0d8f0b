// Shapes, views, and ownership of tensors.
#include "framework/tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "framework/allocator.h"
#include "framework/const_tensor_view.h"
#include "tests/support/error_of.h"

namespace ringtrain {
namespace {

TEST(Shape, CountsItsElements) {
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ(Shape{}.rank(), 0);
  EXPECT_EQ((Shape{2, 3, 4}.numel()), 24);
  EXPECT_EQ((Shape{2, 0, 4}.numel()), 0);
  EXPECT_EQ((Shape{2, 3, 4}.to_string()), "[2, 3, 4]");
  EXPECT_EQ(Shape{}.to_string(), "[]");
  EXPECT_EQ((Shape{2, 3}.with(1, 7)), (Shape{2, 7}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
}

TEST(Shape, RefusesWhatItCannotHold) {
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1}), Error);
  EXPECT_THROW((Shape{-1}), Error);
  EXPECT_THROW((Shape{2}.with(1, 2)), Error);
  EXPECT_THROW((Shape{2}.with(0, -2)), Error);
  constexpr std::int64_t big = std::int64_t{1} << 32;
  EXPECT_EQ((Shape{big, big, 0}.numel()), 0);
  EXPECT_EQ(testing::error_of(ExitCode::usage,
                              [] {
                                (void)Shape{big, big}.numel();
                              }),
            "a tensor of shape [4294967296, 4294967296] has more elements than can be counted");
}

class TensorViewTest : public ::testing::Test {
 protected:
  TensorViewTest() : data(24) { std::iota(data.begin(), data.end(), 0.0f); }
  std::vector<float> data;
};

TEST_F(TensorViewTest, RowsFlatPrefixAndReshapeShareTheMemory) {
  const TensorView view = host_view(data.data(), {4, 3, 2});
  EXPECT_EQ(view.bytes(), 96u);
  EXPECT_EQ(view.rows(1, 3).shape, (Shape{2, 3, 2}));
  EXPECT_EQ(view.rows(1, 3).as<float>(), data.data() + 6);
  EXPECT_EQ(view.rows(4, 4).numel(), 0);
  EXPECT_EQ(view.flat(5, 9).shape, (Shape{4}));
  EXPECT_EQ(view.flat(5, 9).as<float>()[0], 5.0f);
  EXPECT_EQ(view.flat().shape, (Shape{24}));
  EXPECT_EQ(view.reshape({6, 4}).as<float>(), data.data());
  EXPECT_EQ(view.prefix({5, 2}).shape, (Shape{5, 2}));
  EXPECT_EQ(view.prefix({5, 2}).as<float>(), data.data());
  EXPECT_EQ(view.dim(2), 2);
}

TEST_F(TensorViewTest, OutsideItsBoundsIsTheCallersMistake) {
  const TensorView view = host_view(data.data(), {4, 6});
  EXPECT_THROW(view.rows(3, 5), Error);
  EXPECT_THROW(view.rows(3, 2), Error);
  EXPECT_THROW(view.rows(-1, 2), Error);
  EXPECT_THROW(view.flat(20, 25), Error);
  EXPECT_THROW(view.reshape({5, 5}), Error);
  EXPECT_THROW(view.prefix({25}), Error);
  EXPECT_THROW(view.as<double>(), Error);
  EXPECT_THROW(host_view(data.data(), Shape{}).rows(0, 0), Error);
  testing::expect_error(ExitCode::usage, "tensor_test.cpp:", [&] { view.as<std::int32_t>(); });
}

TEST_F(TensorViewTest, WithoutMemoryItStillHasItsShapes) {
  const TensorView planned{nullptr, {4, 6}, DType::float64, Device::cpu()};
  EXPECT_EQ(planned.rows(1, 2).data, nullptr);
  EXPECT_EQ(planned.flat(3, 9).data, nullptr);
  EXPECT_EQ(planned.prefix({5}).shape, (Shape{5}));
  EXPECT_EQ(planned.bytes(), 192u);
}

TEST_F(TensorViewTest, AConstBufferGivesAViewOfItsType) {
  const std::vector<std::int32_t> tokens{1, 2, 3};
  const ConstTensorView view = host_view(tokens.data(), {3});
  EXPECT_EQ(view.dtype, DType::int32);
  EXPECT_EQ(view.as<std::int32_t>(), tokens.data());
}

TEST(Tensor, MovesOwnershipAndReturnsItOnce) {
  Allocator allocator(Device::cpu());
  Tensor a = allocator.make(Tag::weights, "a", DType::float32, {100});
  void* memory = a.view().data;
  Tensor b = std::move(a);
  EXPECT_TRUE(a.empty());  // NOLINT(bugprone-use-after-move): moved-from tensors are empty by contract
  EXPECT_TRUE(a.view().empty());
  EXPECT_EQ(b.view().data, memory);
  EXPECT_EQ(allocator.current().total, 448u);
  Tensor c = allocator.make(Tag::weights, "c", DType::float32, {100});
  c = std::move(b);  // returns c's first memory
  EXPECT_EQ(c.view().data, memory);
  EXPECT_EQ(allocator.current().total, 448u);
  Tensor& self = c;
  c = std::move(self);
  EXPECT_EQ(c.view().data, memory);
  c = Tensor();
  EXPECT_EQ(allocator.current().total, 0u);
}

TEST(DType, SizesNamesAndDispatch) {
  EXPECT_EQ(size_of(DType::float32), sizeof(float));
  EXPECT_EQ(size_of(DType::float64), sizeof(double));
  EXPECT_EQ(size_of(DType::bfloat16), 2u);
  EXPECT_EQ(size_of(DType::int32), 4u);
  EXPECT_EQ(size_of(DType::int64), 8u);
  EXPECT_EQ(size_of(DType::uint8), 1u);
  EXPECT_STREQ(name_of(DType::bfloat16), "bfloat16");
  const auto size = [](DType dtype) { return dispatch_float(dtype, []<class T>() { return sizeof(T); }); };
  EXPECT_EQ(size(DType::float32), 4u);
  EXPECT_EQ(size(DType::float64), 8u);
  EXPECT_THROW(size(DType::int32), Error);
}

}  // namespace
}  // namespace ringtrain
