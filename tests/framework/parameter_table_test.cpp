// The parameter table's order, offsets, buckets, and parts.
#include "framework/parameter_table.h"

#include <gtest/gtest.h>

#include "framework/error.h"

namespace ringtrain {
namespace {

Parameter parameter(const char* name, const Shape& shape, int bucket, Part part = Part::trainable) {
  return {.name = name, .shape = shape, .bucket = bucket, .part = part};
}

class ParameterTableTest : public ::testing::Test {
 protected:
  ParameterTableTest() {
    embedding = table.add(parameter("embedding", {3, 5}, 0));
    query = table.add(parameter("query", {4, 4}, 1));
    frozen = table.add(parameter("frozen", {4, 5}, 1, Part::frozen));
    norm = table.add(parameter("norm", {17}, 1));
    head = table.add(parameter("head", {1}, 3));  // bucket 2 has none
  }
  ParameterTable table;
  int embedding, query, frozen, norm, head;
};

TEST_F(ParameterTableTest, EveryParameterStartsAtAMultipleOf16OfItsPart) {
  EXPECT_EQ(table[embedding].offset, 0);
  EXPECT_EQ(table[query].offset, 16);
  EXPECT_EQ(table[frozen].offset, 0);
  EXPECT_EQ(table[norm].offset, 32);
  EXPECT_EQ(table[head].offset, 64);
  EXPECT_EQ(table.flat_size(), 80);
  EXPECT_EQ(table.flat_size(Part::frozen), 32);
  EXPECT_EQ(table.count(), 15 + 16 + 20 + 17 + 1);
  EXPECT_EQ(table.count(Part::frozen), 20);
  EXPECT_EQ(table.all().size(), 5u);
  EXPECT_EQ(table[norm].name, "norm");
}

TEST_F(ParameterTableTest, BucketsTileEachPart) {
  EXPECT_EQ(table.buckets(), 4);
  for (const Part part : both_parts) {
    std::int64_t end = 0;
    for (int bucket = 0; bucket < table.buckets(); ++bucket) {
      EXPECT_EQ(table.bucket_begin(bucket, part), end);
      end = table.bucket_end(bucket, part);
    }
    EXPECT_EQ(end, table.flat_size(part));
  }
  EXPECT_EQ(table.bucket_end(1), 64);
  EXPECT_EQ(table.bucket_size(1, Part::frozen), 32);
  EXPECT_EQ(table.bucket_begin(2), table.bucket_end(2));
  EXPECT_EQ(ParameterTable{}.buckets(), 0);
  EXPECT_EQ(ParameterTable{}.flat_size(), 0);
}

TEST_F(ParameterTableTest, BucketsAreAddedInOrder) {
  EXPECT_THROW(table.add(parameter("late", {1}, 2)), Error);
}

}  // namespace
}  // namespace ringtrain
