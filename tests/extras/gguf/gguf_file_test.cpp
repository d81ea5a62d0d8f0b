// GGUF headers: what is there is read, and what a hostile file claims is refused before anything is allocated for it.
#include "extras/gguf/gguf_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "tests/support/error_of.h"
#include "tests/support/folder_test.h"

namespace ringtrain::testing {
namespace {

template <class T>
std::string bytes_of(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
std::string u32(std::uint32_t value) {
  return bytes_of(value);
}
std::string u64(std::uint64_t value) {
  return bytes_of(value);
}
std::string text(const std::string& value) {
  return u64(value.size()) + value;
}

/// A file in parts, to be broken one by one.
struct Parts {
  std::string magic = "GGUF", version = u32(3);
  std::uint64_t tensors = 1;
  std::vector<std::string> entries{text("general.architecture") + u32(8) + text("llama")};
  std::string name = "a", dimensions = u32(2) + u64(32) + u64(2), type = u32(8), offset = u64(0);
  std::size_t data = 68;

  std::string file() const {
    std::string all = magic + version + u64(tensors) + u64(entries.size());
    for (const std::string& entry : entries) all += entry;
    all += text(name) + dimensions + type + offset;
    all.resize((all.size() + 31) / 32 * 32);
    return all + std::string(data, '\0');
  }
};

class Gguf : public FolderTest {
 protected:
  GgufFile open(const std::string& bytes) const {
    std::ofstream(at("model.gguf"), std::ios::binary) << bytes;
    return GgufFile::open(at("model.gguf"));
  }
  void expect_refused(const std::string& bytes, const std::string& part) const {
    const std::string sentence = error_of(ExitCode::checkpoint, [&] { open(bytes); });
    EXPECT_NE(sentence.find(at("model.gguf")), std::string::npos) << sentence;
    EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
  }
  void expect_refused(void (*breaks)(Parts&), const std::string& part) const {
    Parts parts;
    breaks(parts);
    expect_refused(parts.file(), part);
  }
};

TEST_F(Gguf, KeysAndTensorsAreRead) {
  Parts parts;
  parts.entries.push_back(text("i") + u32(5) + bytes_of(std::int32_t{-7}));
  parts.entries.push_back(text("f") + u32(6) + bytes_of(0.5F));
  parts.entries.push_back(text("b") + u32(7) + std::string(1, '\1'));
  parts.entries.push_back(text("l") + u32(9) + u32(8) + u64(2) + text("x") + text(""));
  parts.entries.push_back(text("n") + u32(9) + u32(1) + u64(3) + "\1\2\xff");
  const GgufFile file = open(parts.file());
  EXPECT_EQ(*file.find<std::string>("general.architecture"), "llama");
  EXPECT_EQ(*file.find<std::int64_t>("i"), -7);
  EXPECT_EQ(*file.find<double>("f"), 0.5);
  EXPECT_EQ(*file.find<std::vector<std::string>>("l"), (std::vector<std::string>{"x", ""}));
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(file.metadata().find("n")->second),
            (std::vector<std::int64_t>{1, 2, -1}));
  EXPECT_EQ(file.find<std::int64_t>("none"), nullptr);
  error_of(ExitCode::checkpoint, [&] { file.find<std::int64_t>("f"); });
  const GgufTensor& tensor = file.tensors().at("a");
  EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{2, 32}));
  EXPECT_EQ(tensor.bytes, 68);
}

TEST_F(Gguf, ALieIsRefused) {
  expect_refused("GG", "ends beyond");
  expect_refused([](Parts& p) { p.magic = "GGML"; }, "does not begin with GGUF");
  expect_refused([](Parts& p) { p.version = u32(1); }, "version 1");
  expect_refused([](Parts& p) { p.tensors = UINT64_MAX; }, "tensors");
  expect_refused("GGUF" + u32(3) + u64(0) + u64(UINT64_MAX), "entries");
  expect_refused([](Parts& p) { p.entries[0] = u64(UINT64_MAX); }, "bytes of text");
  expect_refused([](Parts& p) { p.entries[0] = text("k") + u32(13); }, "unknown type 13");
  expect_refused([](Parts& p) { p.entries[0] = text("k") + u32(9) + u32(9) + u64(1); }, "list of lists");
  expect_refused([](Parts& p) { p.entries[0] = text("k") + u32(9) + u32(0) + u64(std::uint64_t{1} << 60); },
                 "key k would have");
  expect_refused([](Parts& p) { p.entries.push_back(p.entries[0]); }, "general.architecture stands there twice");
  expect_refused([](Parts& p) { p.entries.push_back(text("general.alignment") + u32(4) + u32(0)); }, "power of two");
  expect_refused([](Parts& p) { p.entries.push_back(text("general.alignment") + u32(4) + u32(48)); }, "power of two");
  expect_refused([](Parts& p) { p.dimensions = u32(5); }, "tensor a has 5 dimensions");
  expect_refused([](Parts& p) { p.dimensions = u32(1) + u64(UINT64_MAX); }, "tensor a has a dimension");
  expect_refused([](Parts& p) { p.dimensions = u32(2) + u64(std::uint64_t{1} << 40) + u64(std::uint64_t{1} << 40); },
                 "too large for this file");
  expect_refused([](Parts& p) { p.dimensions = u32(2) + u64(16) + u64(2); }, "no whole blocks of Q8_0");
  expect_refused([](Parts& p) { p.offset = u64(UINT64_MAX); }, "begins beyond the file");
  expect_refused([](Parts& p) { p.offset = u64(4); }, "no multiple of 32");
  expect_refused([](Parts& p) { p.data = 67; }, "tensor a ends beyond the file");
  for (std::size_t cut = 0; cut < Parts().file().size(); ++cut) {
    error_of(ExitCode::checkpoint, [&] { open(Parts().file().substr(0, cut)); });
  }
}

TEST_F(Gguf, TypesThatAreNotReadAreNamed) {
  Parts parts;
  parts.type = u32(12);  // Q4_K
  const GgufFile file = open(parts.file());
  EXPECT_EQ(file.tensors().at("a").type, nullptr);
  EXPECT_EQ(file.tensors().at("a").type_name, "Q4_K");
}

TEST_F(Gguf, BlocksAreTakenApart) {
  // Scale 0.5, minimum -3, numbers 0 to 15 and back: half precision of both is exact.
  std::string q4(16, '\0');
  for (int i = 0; i < 16; ++i) q4[i] = static_cast<char>(i | (15 - i) << 4);
  const std::string scale("\x00\x38", 2), minimum("\x00\xc2", 2);
  std::vector<double> values(32);
  decode(*find_gguf_type(3), (scale + minimum + q4).data(), 32, values.data());
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(values[i], 0.5 * i - 3);
    EXPECT_EQ(values[i + 16], 0.5 * (15 - i) - 3);
  }
  decode(*find_gguf_type(2), (scale + q4).data(), 32, values.data());
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(values[i], 0.5 * (i - 8));
    EXPECT_EQ(values[i + 16], 0.5 * (7 - i));
  }
  std::string q8;
  for (int i = 0; i < 32; ++i) q8 += static_cast<char>(8 * i - 128);
  decode(*find_gguf_type(8), (scale + q8).data(), 32, values.data());
  for (int i = 0; i < 32; ++i) EXPECT_EQ(values[i], 0.5 * (8 * i - 128));
}

}  // namespace
}  // namespace ringtrain::testing
