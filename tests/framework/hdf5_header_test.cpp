// framework/storage/hdf5_header.h: the files of other writers (tests/fuzz/corpus/token_file, by h5py) open or are
// refused with the reason, mutated ones never do harm, and what is read agrees with what the library wrote.
#include "framework/storage/hdf5_header.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/folder_test.h"
#include "tests/support/paths.h"

namespace ringtrain {
namespace {

namespace fs = std::filesystem;

const std::string corpus = testing::source_folder() + "/tests/fuzz/corpus/token_file";

class HeaderTest : public testing::FolderTest {
 protected:
  static std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  Hdf5Layout layout_of(const std::string& bytes) const {
    const std::string path = at("x.h5");
    std::ofstream(path, std::ios::binary) << bytes;
    return read_hdf5_layout(File::open(path, ExitCode::data), ExitCode::data);
  }
  /// Returns why a file is refused; "" if it is not.
  static std::string refusal(const std::string& name) {
    try {
      read_hdf5_layout(File::open(corpus + "/" + name + ".h5", ExitCode::data), ExitCode::data);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      return error.what();
    }
    return "";
  }
};

TEST_F(HeaderTest, AnAttributesWholeNumberMayHaveAnyWidth) {
  // The attribute of a file by h5py, made an int32: 4 bytes, 32 bits.
  std::string bytes = content(corpus + "/good-old.h5");
  const std::string int64_type("\x10\x08\0\0\x08\0\0\0\0\0\x40\0", 12),
      int32_type("\x10\x08\0\0\x04\0\0\0\0\0\x20\0", 12);
  const std::size_t type = bytes.find(int64_type, bytes.find("vocab_size"));
  ASSERT_NE(type, std::string::npos);
  bytes.replace(type, int32_type.size(), int32_type);
  const Hdf5Layout layout = layout_of(bytes);
  ASSERT_TRUE(layout.attributes.contains("vocab_size"));
  EXPECT_EQ(std::get<std::int64_t>(layout.attributes.at("vocab_size")), 257);
}

TEST_F(HeaderTest, PlainFilesOfOtherWritersOpen) {
  for (const auto* name : {"good-old", "good-new", "good-1.8", "good-old-groups", "good-weights", "good-text"}) {
    SCOPED_TRACE(name);
    const Hdf5Reader reader = Hdf5Reader::open(corpus + "/" + name + ".h5", ExitCode::data);
    const Hdf5Dataset* tokens = reader.find("tokens");
    ASSERT_NE(tokens, nullptr);
    EXPECT_EQ(tokens->type, Hdf5Type::uint16);
    ASSERT_EQ(tokens->dims, (std::vector<std::int64_t>{5}));
    std::vector<std::uint16_t> values(5);
    reader.read(*tokens, 0, values.data(), 5);
    EXPECT_EQ(values, (std::vector<std::uint16_t>{1, 2, 256, 3, 256}));
    std::vector<std::int64_t> offsets(3);
    reader.read(*reader.find("document_offsets"), 0, offsets.data(), 3);
    EXPECT_EQ(offsets, (std::vector<std::int64_t>{0, 3, 5}));
    EXPECT_EQ(reader.integer("vocab_size"), 257);
  }
  const Hdf5Reader groups = Hdf5Reader::open(corpus + "/good-old-groups.h5", ExitCode::data);
  EXPECT_EQ(groups.datasets().size(), 32u);
  std::vector<float> values(3);
  groups.read(*groups.find("weights/layer.29/a"), 0, values.data(), 3);
  EXPECT_EQ(values, (std::vector<float>(3, 29)));
  EXPECT_EQ(Hdf5Reader::open(corpus + "/good-text.h5", ExitCode::data).text("kind"), "text");
}

TEST_F(HeaderTest, WhatIsNotPlainIsRefusedWithTheReason) {
  for (const auto& [name, reason] : {std::pair{"bad-chunks", "chunks"},
                                     {"bad-chunks-new", "chunks"},
                                     {"bad-gzip", ""},
                                     {"bad-variable-length", "variable length"},
                                     {"bad-variable-attribute", "variable length"},
                                     {"bad-soft-link", "soft link"},
                                     {"bad-soft-link-new", "link that leads elsewhere"},
                                     {"bad-external-link", "link that leads elsewhere"},
                                     {"bad-external-data", "in another file"},
                                     {"bad-big-endian", "big-endian"},
                                     {"bad-half", "no float32"},
                                     {"bad-compound", "no number and no text"},
                                     {"bad-committed-type", "no group and no dataset"},
                                     {"bad-cycle", "inside more than 16"},
                                     {"bad-many-links", "more links"},
                                     {"bad-many-attributes", "more attributes"},
                                     {"bad-list-attribute", "not a single value"}}) {
    const std::string found = refusal(name);
    EXPECT_NE(found, "") << name;
    EXPECT_NE(found.find(reason), std::string::npos) << name << ": " << found;
  }
  for (const auto& entry : fs::directory_iterator(corpus)) {
    const std::string name = entry.path().stem().string();
    EXPECT_EQ(refusal(name).empty(), name.starts_with("good-")) << refusal(name);
  }
}

TEST_F(HeaderTest, EveryByteMayBeAnythingAndEveryLengthMayEnd) {
  // Each byte of each good file gets five other values. Whatever opens lies within the file.
  int opened = 0, refused = 0;
  const auto attempt = [&](const std::string& bytes) {
    try {
      for (const Hdf5Dataset& dataset : layout_of(bytes).datasets) {
        ASSERT_GE(dataset.offset, 0);
        ASSERT_LE(dataset.bytes(), static_cast<std::int64_t>(bytes.size()) - dataset.offset);
      }
      ++opened;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ExitCode::data) << error.what();
      ++refused;
    }
  };
  for (const auto* name : {"good-old", "good-new", "good-weights"}) {
    const std::string whole = content(corpus + "/" + name + ".h5");
    for (std::size_t at = 0; at < whole.size(); ++at) {
      if (whole.substr(at, 64) == std::string(64, '\0')) continue;  // gaps
      for (const unsigned value : {0x00u, 0x01u, 0x7Fu, 0x80u, 0xFFu}) {
        std::string mutated = whole;
        mutated[at] = static_cast<char>(value);
        attempt(mutated);
      }
    }
    for (std::size_t size = 0; size < whole.size(); size += 7) {
      EXPECT_THROW(layout_of(whole.substr(0, size)), Error) << size;
    }
  }
  EXPECT_GT(opened, 100);
  EXPECT_GT(refused, 100);
}

TEST_F(HeaderTest, SizesThatAgreeButReachBeyondTheFileAreRefused) {
  // The five tokens become 500 in the dataspace and in the layout alike: 1,000 bytes, fewer than the file has.
  std::string bytes = content(corpus + "/good-old.h5");
  const auto number = [](std::uint64_t value) { return std::string(reinterpret_cast<const char*>(&value), 8); };
  const auto replace_first = [&](std::uint64_t from, std::uint64_t to) {
    const std::size_t at = bytes.find(number(from));
    ASSERT_NE(at, std::string::npos);
    bytes.replace(at, 8, number(to));
  };
  replace_first(5, 500);  // the dimension
  replace_first(5, 500);  // and the most that it may be
  replace_first(10, 1000);
  try {
    layout_of(bytes);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("beyond the file's end (at tokens)"), std::string::npos) << error.what();
  }
}

TEST_F(HeaderTest, AThousandTensorsInNestedGroups) {
  std::vector<Hdf5Dataset> datasets;
  for (int i = 0; i < 1000; ++i) {
    datasets.push_back({fmt::format("{}/model.layers.{}.weight", i % 2 ? "weights" : "moments/first", i),
                        Hdf5Type::float32,
                        {i % 7, 3},
                        0});
  }
  const std::string path = at("many.h5");
  Hdf5Writer writer = Hdf5Writer::create(path, datasets, {{"step", std::int64_t{-3}}}, ExitCode::data);
  const std::vector<Hdf5Dataset> written = writer.datasets();
  writer.finish();
  const Hdf5Reader reader = Hdf5Reader::open(path, ExitCode::data);
  ASSERT_EQ(reader.datasets().size(), 1000u);
  for (const Hdf5Dataset& one : written) {
    const Hdf5Dataset* found = reader.find(one.name);
    ASSERT_NE(found, nullptr) << one.name;
    EXPECT_EQ(found->dims, one.dims);
    EXPECT_EQ(found->offset, one.offset);
  }
  EXPECT_EQ(reader.integer("step"), -3);
}

}  // namespace
}  // namespace ringtrain
