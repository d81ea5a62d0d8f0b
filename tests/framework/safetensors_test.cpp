// safetensors files: what the format's reference refuses is refused, what it accepts is accepted, and written files are
// read back.
#include "framework/storage/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "framework/storage/safetensors_writer.h"
#include "tests/support/error_of.h"
#include "tests/support/folder_test.h"

namespace ringtrain::testing {
namespace {

/// Returns a file with this header and this many bytes of data.
std::string file_of(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data, '\1');
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, int begin, int end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

class Safetensors : public FolderTest {
 protected:
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(at(name), std::ios::binary) << bytes;
  }
  auto read(const std::string& bytes) const {
    write("model.safetensors", bytes);
    return read_safetensors_of_folder(folder, "model.safetensors").tensors;
  }
  /// Expects a refusal that names the file and contains the text.
  void expect_refused(const std::string& bytes, const std::string& part) const {
    expect_error_holding(ExitCode::checkpoint, {at("model.safetensors"), part}, [&] { read(bytes); });
  }
};

TEST_F(Safetensors, TensorsLieWhereTheHeaderSays) {
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," + entry("b", "F16", "[3]", 16, 22) + "," +
                             entry("a", "F32", "[2,2]", 0, 16) + "," + entry("c", "I64", "[]", 22, 30) + "," +
                             entry("d", "F32", "[0,7]", 30, 30) + "}";
  const auto tensors = read(file_of(header, 30));
  ASSERT_EQ(tensors.size(), 4U);
  EXPECT_EQ(tensors.at("a").shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(tensors.at("a").offset, 8 + std::ssize(header));
  EXPECT_EQ(tensors.at("b").type, StoredType::float16);
  EXPECT_EQ(tensors.at("c").type, StoredType::unsupported);
  EXPECT_EQ(tensors.at("c").elements(), 1);
  EXPECT_EQ(tensors.at("d").elements(), 0);
}

TEST_F(Safetensors, WhatTheReferenceToleratesIsTaken) {
  EXPECT_EQ(read(file_of("{}", 0)).size(), 0U);
  EXPECT_EQ(read(file_of("  \n{" + entry("a", "F32", "[1]", 0, 4) + "} \t\r\n", 4)).size(), 1U);
  const std::string extra =
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"of":{"x":[1,{"y":null}]},"b":-1.5}})";
  EXPECT_EQ(read(file_of(extra, 4)).size(), 1U);
}

TEST_F(Safetensors, EachBrokenRuleIsRefused) {
  const std::string one = "{" + entry("a", "F32", "[1]", 0, 4) + "}";
  expect_refused("1234567", "too few");                                                              // 1
  expect_refused(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "more than the 100000000");  // 2
  expect_refused(file_of(one, 4).substr(0, 20), "cut off");                                          // 3
  expect_refused(file_of("{\"\xc3(\":1}", 0), "not valid");                                          // 4
  for (const char* header :
       {"", "[]", "1", "null", "{", "{\"a\":1}", "{\"a\":{}}", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}",
        "{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[[1]],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", "{\"__metadata__\":{\"a\":1}}",
        "{\"__metadata__\":{\"a\":{}}}", "{} x", "\xef\xbb\xbf{}"}) {
    expect_refused(file_of(header, 4), "not valid");  // 5
  }
  expect_refused(file_of(one + std::string(1, '\0') + "garbage", 4), "a zero byte");
  expect_refused(file_of("{" + entry("a", "F33", "[1]", 0, 4) + "}", 4), "a has dtype F33");
  const std::string hole = "{" + entry("a", "F32", "[1]", 0, 4) + "," + entry("b", "F32", "[1]", 5, 9) + "}";
  expect_refused(file_of(hole, 9), "b is at bytes 5 to 9");  // 6
  const std::string overlap = "{" + entry("a", "F32", "[1]", 0, 4) + "," + entry("b", "F32", "[1]", 0, 4) + "}";
  expect_refused(file_of(overlap, 4), "b is at bytes 0 to 4");
  expect_refused(file_of("{" + entry("a", "F32", "[1]", 4, 8) + "}", 8), "a is at bytes 4 to 8");
  expect_refused(file_of("{" + entry("a", "F32", "[0]", 0, -1) + "}", 0), "not valid");
  const std::string huge = "[4294967296,4294967296,4294967296]";
  expect_refused(file_of("{" + entry("a", "F32", huge, 0, 0) + "}", 0), "more elements than a file can hold");  // 7
  expect_refused(file_of("{" + entry("a", "F4", "[3]", 0, 2) + "}", 2), "inside a byte");                       // 8
  expect_refused(file_of("{" + entry("a", "F32", "[2]", 0, 4) + "}", 4), "a has 4 bytes");                      // 9
  expect_refused(file_of(one, 5), "followed by other bytes");                                                   // 10
  expect_refused(file_of(one, 3), "cut off");
  expect_refused(file_of("{" + entry("a", "F32", "[1]", 0, 4) + "," + entry("a", "F32", "[1]", 4, 8) + "}", 8),
                 "the key a appears twice");
}

TEST_F(Safetensors, AnIndexMayNameFilesOfItsFolderOnly) {
  const auto index = [&](const std::string& map) {
    write("model.safetensors.index.json", "{\"metadata\":{},\"weight_map\":{" + map + "}}");
    return error_of(ExitCode::checkpoint, [&] { read_safetensors_folder(folder); });
  };
  write("one.safetensors", file_of("{" + entry("a", "F32", "[1]", 0, 4) + "}", 4));
  write("two.safetensors", file_of("{" + entry("b", "F32", "[1]", 0, 4) + "}", 4));
  write("three.safetensors", file_of("{" + entry("a", "F32", "[1]", 0, 4) + "}", 4));
  fs::create_directory(at("sub"));
  for (const char* name : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..", ".", "", "a\\\\b"}) {
    EXPECT_NE(index("\"a\":\"" + std::string(name) + "\"").find("only name files of its own folder"), std::string::npos)
        << name;
  }
  EXPECT_NE(index("\"b\":\"one.safetensors\"").find("contains a, which"), std::string::npos);
  EXPECT_NE(index("\"a\":\"one.safetensors\",\"x\":\"one.safetensors\"").find("does not contain x"), std::string::npos);
  EXPECT_NE(index("\"a\":\"one.safetensors\",\"c\":\"three.safetensors\"").find("which"), std::string::npos);
  EXPECT_NE(index("\"a\":\"one.safetensors\",\"a\":\"two.safetensors\"").find("twice"), std::string::npos);
  EXPECT_NE(index("\"a\":1").find("not an index"), std::string::npos);
  EXPECT_NE(index("").find("empty"), std::string::npos);
  EXPECT_NE(index("\"a\":\"none.safetensors\"").find("none.safetensors"), std::string::npos);

  fs::create_directory(at("elsewhere"));
  fs::rename(at("one.safetensors"), at("elsewhere/one.safetensors"));
  ASSERT_EQ(::symlink("elsewhere/one.safetensors", at("one.safetensors").c_str()), 0);
  EXPECT_NE(index("\"a\":\"one.safetensors\"").find("outside the link's folder"), std::string::npos);
}

TEST_F(Safetensors, TheHubsCacheOfLinksIsFollowed) {
  fs::create_directories(at("models--x/snapshots/1"));
  fs::create_directories(at("models--x/blobs"));
  write("models--x/blobs/abc", file_of("{" + entry("a", "F32", "[1]", 0, 4) + "}", 4));
  ASSERT_EQ(::symlink("../../blobs/abc", at("models--x/snapshots/1/model.safetensors").c_str()), 0);
  EXPECT_NE(read_safetensors_folder(at("models--x/snapshots/1")).find("a"), nullptr);
}

TEST_F(Safetensors, WhatIsWrittenIsReadBackFromAnySlice) {
  std::vector<float> values(1000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.25F - 100;
  SafetensorsWriter writer(at("model.safetensors"), {{"z", StoredType::float16, "", {1000}},
                                                     {"b", StoredType::float32, "", {10, 100}},
                                                     {"a", StoredType::bfloat16, "", {1000}},
                                                     {"a2", StoredType::float32, "", {1000}}});
  std::vector<std::string> order;
  for (const StoredTensor& tensor : writer.tensors()) {
    order.push_back(tensor.name);
    std::string bytes(static_cast<std::size_t>(tensor.bytes), '\0');
    encode(tensor.type, values.data(), 1000, bytes.data());
    writer.append(bytes.data(), bytes.size());
  }
  writer.finish();
  EXPECT_EQ(order, (std::vector<std::string>{"a2", "b", "a", "z"}));
  const StoredTensors tensors = read_safetensors_folder(folder);
  EXPECT_EQ((tensors.find("a2")->offset - 8) % 8, 0);
  StoredTensorReader reader(tensors);
  for (const char* name : {"b", "z"}) {
    std::vector<double> part(17);
    reader.read(*tensors.find(name), 333, 17, part.data());
    for (std::size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], values[333 + i]) << name;
  }
}

}  // namespace
}  // namespace ringtrain::testing
