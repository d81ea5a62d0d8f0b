// framework/storage/hdf5_file.h: HDF5's own library finds the written data in a file, at the writer's offsets.
#include "framework/storage/hdf5_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <fstream>
#include <new>

#include "tests/support/error_of.h"
#include "tests/support/folder_test.h"
#include "tests/support/hdf5_of_library.h"
#include "tests/support/wait_until.h"

namespace ringtrain::testing {
namespace {

class Hdf5Test : public testing::FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    path = at("a.h5");
  }
  std::string path;
};

TEST_F(Hdf5Test, EveryTypeIsWhereTheLibraryFindsIt) {
  const std::vector<Hdf5Type> types{Hdf5Type::uint8, Hdf5Type::uint16,  Hdf5Type::uint32, Hdf5Type::int32,
                                    Hdf5Type::int64, Hdf5Type::float32, Hdf5Type::float64};
  std::vector<Hdf5Dataset> datasets;
  for (const Hdf5Type type : types) {
    datasets.push_back({std::string("weights/model.layers.0.") + name_of(type), type, {5, 20}, 0});
  }
  std::vector<unsigned char> bytes(100 * 8);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 37 + 11);
  Hdf5Writer writer = Hdf5Writer::create(path, datasets, {}, ExitCode::checkpoint);
  for (std::size_t d = 0; d < types.size(); ++d) {
    const std::size_t element = size_of(types[d]);
    writer.write(d, 40, bytes.data() + 40 * element, 60);  // in any order
    writer.write(d, 0, bytes.data(), 40);
  }
  writer.finish();

  const Hdf5OfLibrary library(path);
  for (std::size_t d = 0; d < types.size(); ++d) {
    const Hdf5Dataset& dataset = writer.datasets()[d];
    EXPECT_EQ(dataset.offset, library.offset(dataset.name)) << dataset.name;
    std::vector<unsigned char> read(100 * size_of(types[d]));
    File::open(path, ExitCode::data).read_at(dataset.offset, read.data(), read.size());
    EXPECT_EQ(std::memcmp(read.data(), bytes.data(), read.size()), 0) << dataset.name;
  }
  EXPECT_EQ(library.values("weights/model.layers.0.uint8")[1], 37 + 11);
}

TEST_F(Hdf5Test, AttributesOfEveryKindAlsoLongOnes) {
  const std::string text(max_attribute_text - 40, 'x');
  Hdf5Writer::create(path, {{"d", Hdf5Type::int32, {1}, 0}},
                     {{"count", std::int64_t{-7}},
                      {"floor", 1.0 / 3.0},
                      {"empty", std::string()},
                      {"config", "model:\n  größe: 1\n" + text}},
                     ExitCode::data)
      .finish();
  const Hdf5OfLibrary library(path);
  EXPECT_EQ(library.integer("count"), -7);
  EXPECT_EQ(library.number("floor"), 1.0 / 3.0);
  EXPECT_EQ(library.text("empty"), "");
  EXPECT_EQ(library.text("config"), "model:\n  größe: 1\n" + text);
}

TEST_F(Hdf5Test, EmptyScalarAndUnwrittenDatasets) {
  Hdf5Writer writer = Hdf5Writer::create(
      path,
      {{"empty", Hdf5Type::int64, {0}, 0}, {"one", Hdf5Type::float64, {}, 0}, {"never", Hdf5Type::int64, {1000}, 0}},
      {}, ExitCode::data);
  const double value = 2.5;
  writer.write(1, 0, &value, 1);
  writer.write(0, 0, nullptr, 0);
  writer.finish();
  const Hdf5OfLibrary library(path);
  EXPECT_EQ(library.values("empty"), std::vector<double>());
  EXPECT_EQ(library.values("one"), std::vector<double>{2.5});
  EXPECT_EQ(library.values("never"), std::vector<double>(1000, 0));
}

TEST_F(Hdf5Test, AThousandTensorsInNestedGroups) {
  std::vector<Hdf5Dataset> datasets;
  for (int i = 0; i < 1000; ++i) {
    datasets.push_back({fmt::format("{}/model.layers.{}.weight", i % 2 ? "weights" : "moments/first", i),
                        Hdf5Type::float32,
                        {i % 7, 3},
                        0});
  }
  Hdf5Writer writer = Hdf5Writer::create(path, datasets, {{"step", std::int64_t{-3}}}, ExitCode::data);
  writer.finish();
  write_dataset_list(path, {.step = 3, .datasets = writer.datasets()}, ExitCode::data);
  const DatasetList list = read_dataset_list(path, ExitCode::data);
  EXPECT_EQ(list.step, 3);
  ASSERT_EQ(list.datasets.size(), 1000u);
  const Hdf5OfLibrary library(path);
  EXPECT_EQ(library.integer("step"), -3);
  for (const Hdf5Dataset& one : list.datasets) {
    if (one.count() > 0) {
      ASSERT_EQ(one.offset, library.offset(one.name)) << one.name;
    }
    ASSERT_EQ(static_cast<std::int64_t>(library.values(one.name).size()), one.count()) << one.name;
  }
}

TEST_F(Hdf5Test, SameContentSameBytes) {
  std::string bytes[2];
  for (std::string& one : bytes) {
    remove_tree(path, ExitCode::data);
    Hdf5Writer writer =
        Hdf5Writer::create(path, {{"a/b/c", Hdf5Type::int32, {3}, 0}, {"a/b/d", Hdf5Type::int32, {3}, 0}},
                           {{"text", std::string("t")}}, ExitCode::data);
    const std::int32_t values[3] = {1, 2, 3};
    writer.write(0, 0, values, 3);
    writer.write(1, 0, values, 3);
    writer.finish();
    one = read_file(path, ExitCode::data);
    const std::time_t second = std::time(nullptr);  // HDF5's times count seconds
    EXPECT_TRUE(testing::wait_until([&] { return std::time(nullptr) != second; }));
  }
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST_F(Hdf5Test, RefusesToWriteWhereItCannot) {
  Hdf5Writer::create(path, {{"a", Hdf5Type::uint8, {1}, 0}}, {}, ExitCode::data).finish();
  expect_error(ExitCode::checkpoint, "File exists", [&] { Hdf5Writer::create(path, {}, {}, ExitCode::checkpoint); });
  const std::int64_t elements = free_bytes(folder, ExitCode::data);
  expect_error(ExitCode::usage,
               "No space left on device: it needs " + std::to_string(4 * elements + (1 << 20)) + " bytes", [&] {
                 Hdf5Writer::create(at("big.h5"), {{"a", Hdf5Type::float32, {elements}, 0}}, {}, ExitCode::usage);
               });
  EXPECT_FALSE(path_exists(at("big.h5")));
}

// Each test is a separate process, in which the library has not yet read the variable.
TEST_F(Hdf5Test, ReservesTheBytesOfALockedFile) {
  ::setenv("HDF5_USE_FILE_LOCKING", "TRUE", 1);
  File file = File::create(path, ExitCode::data), plain = File::create(at("plain"), ExitCode::data);
  ASSERT_TRUE(file.try_lock() == LockState::ours);
  Hdf5Writer::create(path, {{"a", Hdf5Type::uint8, {1 << 22}, 0}}, {}, ExitCode::data, Hdf5Destination::empty_file);
  plain.reserve(1 << 22);  // reserves nothing if the file system cannot
  EXPECT_EQ(file.stamp().allocated >= file.size(), plain.stamp().allocated >= plain.size());
}

// The library does not check whether its allocations succeed. Each amount of remaining memory is tested in a separate
// process, which has not used the library before.
TEST_F(Hdf5Test, WithoutMemoryItIsAnErrorNotACrash) {
#ifdef RINGTRAIN_SANITIZED
  GTEST_SKIP() << "sanitizers need all of the address space";
#endif
  int written = 0, refused = 0;
  for (int quarters = 0; quarters < 80; ++quarters) {  // of a MiB
    const pid_t child = ::fork();
    if (child == 0) {
      std::int64_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const auto limit = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE) + quarters * (std::int64_t{1} << 18));
      const rlimit address_space{limit, limit};
      ::setrlimit(RLIMIT_AS, &address_space);
      try {
        std::vector<Hdf5Dataset> datasets;
        for (int i = 0; i < 20; ++i) datasets.push_back({"a/" + std::to_string(i), Hdf5Type::float64, {64}, 0});
        Hdf5Writer::create(path, datasets, {{"n", std::int64_t{1}}}, ExitCode::checkpoint).finish();
        ::_exit(0);
      } catch (const Error& error) {
        ::_exit(static_cast<int>(error.code()));
      } catch (const std::bad_alloc&) {
        ::_exit(70);
      }
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << quarters << " quarters of a MiB: killed by signal " << WTERMSIG(status);
    written += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    refused += WIFEXITED(status) && WEXITSTATUS(status) == 4;
    std::filesystem::remove(path);
  }
  EXPECT_GT(written, 10);
  EXPECT_GT(refused, 10);
}

TEST_F(Hdf5Test, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        const std::string name = at(std::to_string(t) + "-" + std::to_string(i));
        Hdf5Writer writer = Hdf5Writer::create(name, {{"x", Hdf5Type::int32, {1}, 0}}, {}, ExitCode::data);
        writer.write(0, 0, &t, 1);
        writer.finish();
        int read = -1;
        File::open(name, ExitCode::data).read_at(writer.datasets()[0].offset, &read, sizeof read);
        EXPECT_EQ(read, t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ringtrain::testing
