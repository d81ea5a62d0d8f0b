// The parameter table's order, offsets and buckets; weights and gradients as views of two flat buffers.
#include "framework/parameters.h"

#include <gtest/gtest.h>

#include "framework/allocator.h"

namespace ringtrain {
namespace {

Parameter parameter(const char* name, const Shape& shape, int bucket) {
  Parameter result;
  result.name = name;
  result.shape = shape;
  result.bucket = bucket;
  return result;
}

class ParametersTest : public testing::Test {
 protected:
  ParametersTest() {
    embedding = table.add(parameter("embedding", {3, 5}, 0));
    query = table.add(parameter("query", {4, 4}, 1));
    norm = table.add(parameter("norm", {17}, 1));
    head = table.add(parameter("head", {1}, 3));  // bucket 2 has none
  }
  ParameterTable table;
  int embedding, query, norm, head;
};

TEST_F(ParametersTest, EveryParameterStartsAtAMultipleOf16) {
  EXPECT_EQ(table[embedding].offset, 0);
  EXPECT_EQ(table[query].offset, 16);
  EXPECT_EQ(table[norm].offset, 32);
  EXPECT_EQ(table[head].offset, 64);
  EXPECT_EQ(table.flat_size(), 80);
  EXPECT_EQ(table.count(), 15 + 16 + 17 + 1);
  EXPECT_EQ(table.all().size(), 4u);
  EXPECT_EQ(table[norm].name, "norm");
}

TEST_F(ParametersTest, GroupsTileTheFlatBuffer) {
  EXPECT_EQ(table.buckets(), 4);
  EXPECT_EQ(table.bucket_begin(0), 0);
  std::int64_t end = 0;
  for (int bucket = 0; bucket < table.buckets(); ++bucket) {
    EXPECT_EQ(table.bucket_begin(bucket), end);
    end = table.bucket_end(bucket);
  }
  EXPECT_EQ(end, table.flat_size());
  EXPECT_EQ(table.bucket_end(1), 64);
  EXPECT_EQ(table.bucket_begin(2), table.bucket_end(2));
  EXPECT_EQ(ParameterTable{}.buckets(), 0);
  EXPECT_EQ(ParameterTable{}.flat_size(), 0);
}

TEST_F(ParametersTest, GroupsAreAddedInOrder) {
  EXPECT_THROW(table.add(parameter("late", {1}, 2)), Error);
}

TEST_F(ParametersTest, ViewsLieWhereTheTableSays) {
  Allocator allocator(Device::cpu());
  const Parameters parameters(allocator, table, DType::float64, true);
  EXPECT_TRUE(parameters.has_gradients());
  double* weights = parameters.all_weights().as<double>();
  double* gradients = parameters.all_gradients().as<double>();
  EXPECT_EQ(parameters.weight(query).as<double>(), weights + 16);
  EXPECT_EQ(parameters.weight(query).shape, (Shape{4, 4}));
  EXPECT_EQ(parameters.gradient(norm).as<double>(), gradients + 32);
  EXPECT_EQ(parameters.gradient(norm).shape, (Shape{17}));
  EXPECT_EQ(parameters.bucket_weights(1).as<double>(), weights + 16);
  EXPECT_EQ(parameters.bucket_weights(1).shape, (Shape{48}));
  EXPECT_EQ(parameters.bucket_gradients(3).as<double>(), gradients + 64);
  EXPECT_EQ(parameters.bucket_gradients(3).shape, (Shape{16}));
  EXPECT_EQ(allocator.current()[Tag::weights], 640u);
  EXPECT_EQ(allocator.current()[Tag::gradients], 640u);
}

TEST_F(ParametersTest, TheFirstWriteOfAForgottenGradientDoesNotAdd) {
  Allocator allocator(Device::cpu());
  Parameters parameters(allocator, table, DType::float64, true);
  EXPECT_TRUE(parameters.begin_write(query));
  parameters.forget_gradients();
  EXPECT_FALSE(parameters.has_gradient(query));
  EXPECT_FALSE(parameters.begin_write(query));
  EXPECT_TRUE(parameters.has_gradient(query));
  EXPECT_TRUE(parameters.begin_write(query));
  EXPECT_FALSE(parameters.has_gradient(norm));
}

TEST_F(ParametersTest, WithoutGradientsThereIsNoMemoryForThem) {
  Allocator allocator(Device::cpu());
  Parameters parameters(allocator, table, DType::float32, false);
  EXPECT_FALSE(parameters.has_gradients());
  EXPECT_EQ(allocator.current()[Tag::gradients], 0u);
  EXPECT_TRUE(parameters.all_gradients().empty());
  parameters.acquire(3);
  parameters.release(3);
  EXPECT_THROW(parameters.acquire(4), Error);
  EXPECT_THROW(parameters.release(-1), Error);
}

TEST_F(ParametersTest, APlanHasShapesAndNoData) {
  Allocator allocator(Device::cpu(), Allocator::Mode::plan);
  const Parameters parameters(allocator, table, DType::float32, true);
  EXPECT_TRUE(parameters.has_gradients());
  EXPECT_EQ(parameters.weight(norm).data, nullptr);
  EXPECT_EQ(parameters.weight(norm).shape, (Shape{17}));
  EXPECT_EQ(allocator.peak().total, 640u);
}

}  // namespace
}  // namespace ringtrain
