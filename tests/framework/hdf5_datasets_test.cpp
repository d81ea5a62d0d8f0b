// framework/storage/hdf5_datasets.h: a list that a forger may have written is refused, or all of it is within the file.
#include "framework/storage/hdf5_datasets.h"

#include <gtest/gtest.h>

#include <fstream>

#include "framework/storage/files.h"
#include "tests/support/error_of.h"
#include "tests/support/folder_test.h"

namespace ringtrain::testing {
namespace {

/// The list of a file of 1,000 bytes, written by hand.
class DatasetLists : public testing::FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    path = at("a.h5");
    write_file(path, std::string(1000, 'x'), ExitCode::data);
  }
  DatasetList read(const std::string& text) const {
    std::ofstream(dataset_list_path(path), std::ios::binary | std::ios::trunc) << text;
    return read_dataset_list(path, ExitCode::data);
  }
  static std::string list_of(const std::string& datasets) {
    return R"({"format": "ringtrain datasets", "format_version": 1, "step": 7, "datasets": [)" + datasets + "]}";
  }
  static std::string one(const std::string& name, const std::string& type, const std::string& shape,
                         const std::string& offset) {
    return fmt::format(R"({{"name": "{}", "type": "{}", "shape": {}, "offset": {}}})", name, type, shape, offset);
  }
  /// Returns why a list is refused.
  std::string refusal(const std::string& datasets) const {
    const std::string message = error_of(ExitCode::data, [&] { read(list_of(datasets)); });
    EXPECT_NE(message.find("a.h5.json: is damaged: "), std::string::npos) << message;
    return message.substr(message.find("damaged: ") + 9);
  }
  std::string path;
};

TEST_F(DatasetLists, AreReadToTheFilesLastByte) {
  const DatasetList list = read(list_of(one("tokens", "uint16", "[100, 5]", "0") + ", " +  // 1,000 bytes
                                        one("none", "int64", "[0]", "1000")));
  EXPECT_EQ(list.step, 7);
  ASSERT_EQ(list.datasets.size(), 2u);
  EXPECT_EQ(list.datasets[0].type, Hdf5Type::uint16);
  EXPECT_EQ(list.datasets[0].bytes(), 1000);
  EXPECT_EQ(find_dataset(list.datasets, "none"), &list.datasets[1]);
  EXPECT_EQ(find_dataset(list.datasets, "other"), nullptr);
  EXPECT_EQ(read(list_of(one("one", "float64", "[]", "992"))).datasets[0].count(), 1);
}

TEST_F(DatasetLists, ThatReachBeyondTheFileAreRefused) {
  const std::string beyond = "dataset x reaches beyond the file's end", larger = "dataset x is larger than the file";
  EXPECT_EQ(refusal(one("x", "uint16", "[500]", "1")), beyond);
  EXPECT_EQ(refusal(one("x", "uint8", "[1]", "1000")), beyond);
  EXPECT_EQ(refusal(one("x", "float64", "[]", "993")), beyond);
  EXPECT_EQ(refusal(one("x", "uint8", "[0]", "1001")), beyond);
  EXPECT_EQ(refusal(one("x", "uint8", "[1]", "9223372036854775807")), beyond);
  EXPECT_EQ(refusal(one("x", "uint16", "[501]", "0")), larger);
  EXPECT_EQ(refusal(one("x", "int64", "[9223372036854775807]", "0")), larger);
  // Products that are 0 and 1 modulo 2^64.
  EXPECT_EQ(refusal(one("x", "uint8", "[4294967296, 4294967296]", "0")), larger);
  EXPECT_EQ(refusal(one("x", "uint8", "[5, 3689348814741910323, 1, 1]", "0")), larger);
}

TEST_F(DatasetLists, ThatContradictThemselvesAreRefused) {
  EXPECT_EQ(refusal(one("x", "uint8", "[10]", "0") + "," + one("y", "uint8", "[10]", "9")),
            "two datasets share bytes from 9 on");
  EXPECT_EQ(refusal(one("x", "uint8", "[10]", "9") + "," + one("y", "uint8", "[1000]", "0")),
            "two datasets share bytes from 9 on");
  EXPECT_EQ(refusal(one("x", "uint8", "[1]", "0") + "," + one("x", "uint8", "[1]", "1")), "two datasets are called x");
  EXPECT_EQ(refusal(one("x", "float16", "[1]", "0")), "type float16 is unknown");
  EXPECT_EQ(refusal(one("x", "uint8", "[-1]", "0")), "shape is not a count");
  EXPECT_EQ(refusal(one("x", "uint8", "[1.5]", "0")), "shape is not a count");
  EXPECT_EQ(refusal(one("x", "uint8", "7", "0")), "shape is not a list");
  EXPECT_EQ(refusal(one("x", "uint8", "[1]", "-1")), "offset is not a count");
  EXPECT_EQ(refusal(R"({"name": "x"})"), "type is missing");
  error_of(ExitCode::data, [&] { read(R"({"format": "ringtrain datasets", "format_version": 2, "datasets": []})"); });
  error_of(ExitCode::data, [&] { read(R"({"format": "another", "format_version": 1, "datasets": []})"); });
  remove_tree(dataset_list_path(path), ExitCode::data);
  error_of(ExitCode::data, [&] { read_dataset_list(path, ExitCode::data); });
}

TEST_F(DatasetLists, EveryByteMayBeAnythingAndEveryLengthMayEnd) {
  const std::string whole = list_of(one("a", "float32", "[20, 10]", "8") + "," + one("b", "int64", "[7]", "808"));
  int opened = 0, refused = 0;
  const auto attempt = [&](const std::string& text) {
    try {
      for (const Hdf5Dataset& dataset : read(text).datasets) {
        ASSERT_GE(dataset.offset, 0);
        ASSERT_LE(dataset.bytes(), 1000 - dataset.offset);
      }
      ++opened;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ExitCode::data) << error.what();
      ++refused;
    }
  };
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const char value : {'\0', '\x7f', '\xff', '0', '9', ' ', ',', '"', '-', ']'}) {
      std::string mutated = whole;
      mutated[i] = value;
      attempt(mutated);
    }
    attempt(whole.substr(0, i));
  }
  EXPECT_GT(opened, 50);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace ringtrain::testing
