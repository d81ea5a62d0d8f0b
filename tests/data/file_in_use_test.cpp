// A token file that somebody writes while it is open (data/block_checksums.h): reads return what was hashed, or an
// Error(data). Changes that leave the content as it was are not an error.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

#include "data/block_checksums.h"
#include "data/token_file.h"
#include "tests/data/data_fixture.h"

namespace ringtrain {
namespace {

class FileInUse : public DataTest {
 protected:
  void SetUp() override {
    DataTest::SetUp();
    content = make_content({5, 70000, 33333, 9}, true);
    path = write("a.h5", content);
    file = TokenFile::open(path);
    const TokenManifest manifest = read_manifest(path);
    tokens_at = find_dataset(manifest.datasets, "tokens")->offset;
    weights_at = find_dataset(manifest.datasets, "weights")->offset;
  }
  /// Overwrites bytes of the file in place, as dd conv=notrunc does.
  template <class T>
  void overwrite(std::int64_t offset, T value) const {
    File::open_for_update(path, ExitCode::data).write_at(offset, &value, sizeof value);
  }
  std::string refusal(std::int64_t begin = 0, std::size_t count = 100) const {
    std::vector<std::int32_t> tokens(count);
    std::string said = error_of(ExitCode::data, [&] { file->read(begin, tokens); });
    EXPECT_TRUE(holds(said, path));
    return said;
  }
  void expect_readable() const {
    const std::vector<std::int32_t> stream = content.stream();
    std::vector<std::int32_t> tokens(stream.size());
    std::vector<float> weights(stream.size());
    file->read(0, tokens);
    file->read_weights(0, weights);
    EXPECT_EQ(tokens, stream);
    EXPECT_EQ(weights, content.weights);
  }
  Content content;
  std::string path;
  std::unique_ptr<TokenFile> file;
  std::int64_t tokens_at = 0, weights_at = 0;
};

TEST_F(FileInUse, ATokenThatIsOverwrittenIsNeverRead) {
  for (const int token : {300, 7, 65535}) {
    overwrite(tokens_at + 2 * 60000, static_cast<std::uint16_t>(token));
    EXPECT_TRUE(holds(refusal(59990), "was changed while it was in use: its bytes"));
    EXPECT_TRUE(holds(refusal(59990), "--resume")) << "and again";
  }
  overwrite(tokens_at + 2 * 60000, static_cast<std::uint16_t>(content.stream()[60000]));
  expect_readable();  // the earlier content is restored
}

TEST_F(FileInUse, AChangeElsewhereIsSeenToo) {
  overwrite(tokens_at + 2 * 100000, std::uint16_t{1});
  overwrite(tokens_at + 2 * 100001, std::uint16_t{2});
  EXPECT_TRUE(holds(refusal(), "was changed while it was in use"));
}

TEST_F(FileInUse, WeightsAreCheckedAsTokensAre) {
  for (const float weight : {NAN, -1.0f, 0.25f}) {
    overwrite(weights_at + 4 * 5000, weight);
    std::vector<float> weights(10);
    expect_error(ExitCode::data, "was changed", [&] { file->read_weights(4995, weights); });
  }
}

TEST_F(FileInUse, AnotherFileCopiedOverItIsNotRead) {
  Content other = make_content({5, 70000, 33333, 9}, true);
  std::ranges::for_each(other.documents[1], [](std::int32_t& token) { token = 255 - std::min(token, 255); });
  other.documents[1].back() = 256;
  const std::string twin = write("b.h5", other);
  ASSERT_EQ(fs::file_size(twin), fs::file_size(path));
  const struct timespec times[2] = {{0, UTIME_OMIT}, {1'700'000'000, 0}};
  std::ofstream(path, std::ios::binary | std::ios::trunc) << std::ifstream(twin, std::ios::binary).rdbuf();
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);  // like cp -p
  EXPECT_TRUE(holds(refusal(), "was changed while it was in use: its bytes"));
}

TEST_F(FileInUse, AnotherLengthIsSeenAtOnce) {
  const auto bytes = fs::file_size(path);
  fs::resize_file(path, bytes + 1);
  EXPECT_TRUE(holds(refusal(), fmt::format("it had {} bytes and now has {}", bytes, bytes + 1)));
  fs::resize_file(path, static_cast<std::uintmax_t>(tokens_at) + 1000);
  EXPECT_TRUE(holds(refusal(), fmt::format("it had {} bytes and now has", bytes)));
  fs::resize_file(path, 0);
  EXPECT_TRUE(holds(refusal(), "and now has 0"));
}

TEST_F(FileInUse, WhatLeavesTheContentIsNoChange) {
  const struct timespec times[2] = {{1'700'000'000, 0}, {1'700'000'000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  expect_readable();
  fs::permissions(path, fs::perms::owner_read);
  expect_readable();
  fs::create_hard_link(path, at("link.h5"));
  expect_readable();
  fs::rename(path, at("moved.h5"));
  expect_readable();
  fs::remove(at("link.h5"));
  fs::remove(at("moved.h5"));
  expect_readable();  // its bytes exist as long as it is open
  write_file(path, "another file of that name", ExitCode::data);
  expect_readable();
}

TEST_F(FileInUse, EveryByteOfEveryBlockCounts) {
  std::string bytes(static_cast<std::size_t>(2 * BlockChecksums::block_bytes + 77), '\0');
  std::iota(bytes.begin(), bytes.end(), '\1');
  write_file(at("plain"), bytes, ExitCode::data);
  const File plain = File::open(at("plain"), ExitCode::data);
  const BlockChecksums checksums(plain);
  EXPECT_EQ(checksums.hash(), hash_bytes(bytes));
  const auto size = static_cast<std::int64_t>(bytes.size()), block = BlockChecksums::block_bytes;
  for (const auto& [begin, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, size}, {0, 0}, {size, 0}, {block - 1, 2}, {block, block}, {block - 1, block + 2}, {size - 1, 1}}) {
    std::string found(static_cast<std::size_t>(count), 'x');
    checksums.read(plain, begin, found.data(), found.size());
    EXPECT_EQ(found, bytes.substr(begin, found.size())) << begin;
  }
  for (const std::int64_t at_byte : {std::int64_t{0}, block - 1, block, 2 * block, size - 1}) {
    char byte = static_cast<char>(bytes[at_byte] ^ 1);
    File::open_for_update(at("plain"), ExitCode::data).write_at(at_byte, &byte, 1);
    char found = 0;
    expect_error(
        ExitCode::data,
        fmt::format("its bytes {} to {}", at_byte / block * block, std::min(at_byte / block * block + block, size) - 1),
        [&] { checksums.read(plain, at_byte, &found, 1); });
    File::open_for_update(at("plain"), ExitCode::data).write_at(at_byte, &bytes[at_byte], 1);
  }
  write_file(at("nothing"), "", ExitCode::data);
  const BlockChecksums of_nothing(File::open(at("nothing"), ExitCode::data));
  EXPECT_EQ(of_nothing.hash(), hash_bytes(""));
}

}  // namespace
}  // namespace ringtrain
