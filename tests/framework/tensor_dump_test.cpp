// A dump of simulated ranks: global order, tokens in chunks, dtypes, parts, tensors that are computed twice, and the
// rules of the folder.
#include "framework/dump/tensor_dump.h"

#include <array>
#include <cmath>
#include <fstream>

#include "framework/dump/dump_comparison.h"
#include "framework/dump/dump_reader.h"
#include "tests/support/error_of.h"
#include "tests/support/folder_test.h"

namespace ringtrain::testing {
namespace {

class Dump : public FolderTest {
 protected:
  Dump() : pool(1), stream(pool) {}
  /// A step of 2 sequences of 3 tokens.
  static DumpIndex step() {
    return {.step = 4,
            .data = 1,
            .sequence = 2,
            .layout = "striped",
            .device = "cpu",
            .dtype = "float64",
            .sequences = 2,
            .sequence_length = 3,
            .tensors = {}};
  }
  /// Writes the parts of `ranks` ranks of a tensor whose element [row, column] is 10 * row + column: rank r has
  /// positions r, r + ranks, ... of each sequence, one sequence per micro-batch, in chunks of one token. Returns the
  /// index.
  DumpIndex write(const std::string& name, int ranks, std::size_t part_bytes = TensorDump::default_part_bytes) {
    DumpIndex index = step();
    index.sequence = ranks;
    lock = begin_dump_folder(at(name), index);
    for (int rank = 0; rank < ranks; ++rank) {
      TensorDump to(at(name), rank, part_bytes);
      for (std::int64_t sequence = 0; sequence < 2; ++sequence) {
        std::vector<std::int64_t> rows;
        for (std::int64_t position = rank; position < 3; position += ranks) rows.push_back(3 * sequence + position);
        to.begin_micro_batch(rows);
        for (std::size_t t = rows.size(); t-- > 0;) {  // the order of chunks does not matter
          std::array values{10.0 * static_cast<double>(rows[t]), 10.0 * static_cast<double>(rows[t]) + 1};
          to.write(stream, {.name = "x", .layer = 1, .first_row = static_cast<std::int64_t>(t)},
                   host_view(values.data(), {1, 2}));
        }
      }
      std::vector<float> parameter{1, 2, 3, 4};  // rank 0 has all but the last
      const std::int64_t begin = ranks > 1 && rank == 1 ? 3 : 0, end = ranks > 1 && rank == 0 ? 3 : rank < 2 ? 4 : 0;
      to.write_slice(stream, "weight", {2, 2}, begin, host_view(parameter.data(), {4}).flat(begin, end));
      to.finish();
      index.tensors = to.tensors();
    }
    write_dump_index(at(name), index);
    return index;
  }
  static std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  ThreadPool pool;
  Stream stream;
  FileLock lock;
};

TEST_F(Dump, ComesInGlobalOrderFromAnyRanks) {
  for (const int ranks : {1, 2, 3}) {
    SCOPED_TRACE(ranks);
    write("dump", ranks);
    lock = {};
    const DumpReader reader(at("dump"));
    ASSERT_EQ(reader.index().tensors.size(), 2u);
    EXPECT_EQ(reader.index().step, 4);
    EXPECT_EQ(reader.index().sequence, ranks);
    const DumpedTensor& x = reader.index().tensors[0];
    EXPECT_EQ(x.name, "layer.1.x");
    EXPECT_EQ(x.shape, Shape{2});
    EXPECT_EQ(reader.read(x), (std::vector<double>{0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51}));
    EXPECT_EQ(reader.rank_of(x, 9), 1 % ranks);  // sequence 1, position 1
    const DumpedTensor* const weight = reader.find("weight");
    ASSERT_NE(weight, nullptr);
    EXPECT_EQ(reader.read(*weight), (std::vector<double>{1, 2, 3, 4}));
    EXPECT_EQ(reader.rank_of(*weight, 3), ranks > 1 ? 1 : 0);
    EXPECT_EQ(reader.find("y"), nullptr);
  }
}

TEST_F(Dump, HasTheSameContentInManyParts) {
  write("one", 2);
  EXPECT_FALSE(path_exists(dump_part_path(at("one"), 0, 1)));
  write("many", 2, /*part_bytes=*/1);
  EXPECT_TRUE(path_exists(dump_part_path(at("many"), 0, 2)));
  const DumpReader one(at("one")), many(at("many"));
  const DumpComparison comparison = compare_dumps(one, many, {});
  EXPECT_EQ(comparison.tensors.size(), 2u);
  EXPECT_TRUE(comparison.agree());
}

TEST_F(Dump, TurnsHeadsIntoRowsAndWidensBfloat16) {
  lock = begin_dump_folder(at("dump"), step());
  TensorDump to(at("dump"), 0);
  to.begin_micro_batch({0, 1, 2, 3, 4, 5});
  std::vector<BFloat16> heads;  // [2 sequences, 2 heads, 3 tokens]
  for (int i = 0; i < 12; ++i) heads.push_back(BFloat16::rounded(static_cast<float>(i)));
  to.write(stream, {.name = "logsumexp", .gradient = true}, host_view(heads.data(), {2, 2, 3}));
  std::vector<std::int32_t> tokens{9, 8, 7, 6, 5, 4};
  to.write(stream, {.name = "tokens"}, host_view(tokens.data(), {6}));
  to.finish();
  DumpIndex index = step();
  index.tensors = to.tensors();
  write_dump_index(at("dump"), index);
  const DumpReader reader(at("dump"));
  EXPECT_EQ(reader.read(*reader.find("grad.logsumexp")), (std::vector<double>{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11}));
  EXPECT_EQ(reader.read(*reader.find("tokens")), (std::vector<double>{9, 8, 7, 6, 5, 4}));
}

TEST_F(Dump, WhatIsComputedAgainMustHaveTheSameBits) {
  lock = begin_dump_folder(at("dump"), step());
  TensorDump to(at("dump"), 5, /*part_bytes=*/1);
  for (int micro = 0; micro < 2; ++micro) {
    to.begin_micro_batch({0, 1});
    std::vector<double> x{1, 2};
    to.write(stream, {.name = "x", .layer = 3}, host_view(x.data(), {2}));
    to.write(stream, {.name = "x", .layer = 3}, host_view(x.data(), {2}));
    x[1] = std::nextafter(x[1], 3.0);
    if (micro == 0) continue;
    expect_error(ExitCode::internal, "rank 5, micro-batch 1: layer.3.x",
                 [&] { to.write(stream, {.name = "x", .layer = 3}, host_view(x.data(), {2})); });
  }
  std::vector<double> x{1};
  to.write(stream, {.name = "y"}, host_view(x.data(), {1}));
  EXPECT_THROW(to.finish(), Error) << "a token of y has not come";
}

TEST_F(Dump, DoesNothingWithoutOne) {
  std::vector<double> x{1};
  dump(stream, {.name = "x"}, host_view(x.data(), {1}));
  EXPECT_TRUE(list_directory(folder, ExitCode::usage).empty());
}

TEST_F(Dump, ThatIsNotWholeIsRefused) {
  error_of(ExitCode::data, [&] { DumpReader reader(at("nowhere")); });
  lock = begin_dump_folder(at("begun"), step());
  expect_error(ExitCode::data, "it is incomplete", [&] { DumpReader reader(at("begun")); });

  write("dump", 2);
  std::filesystem::remove(dump_part_path(at("dump"), 1, 0));
  const DumpReader lacking(at("dump"));
  expect_error(ExitCode::data, "it holds only 8 of the 12 elements of layer.1.x",
               [&] { lacking.read(lacking.index().tensors[0]); });

  const std::string part = dump_part_path(at("dump"), 0, 0), other = dump_part_path(at("dump"), 1, 0);
  std::filesystem::copy(part, other);
  std::filesystem::copy(dataset_list_path(part), dataset_list_path(other),
                        std::filesystem::copy_options::overwrite_existing);
  DumpIndex index = lacking.index();
  const DumpReader twice(at("dump"));
  error_of(ExitCode::data, [&] { twice.read(twice.index().tensors[0]); });
  index.tensors[1].shape = {3, 2};  // the same number of elements as two slices of three
  write_dump_index(at("dump"), index);
  const DumpReader again(at("dump"));
  expect_error(ExitCode::data, "element 0 of weight appears twice", [&] { again.read(again.index().tensors[1]); });

  std::ofstream(at("dump") + "/index.json") << "{}";
  error_of(ExitCode::data, [&] { DumpReader reader(at("dump")); });
}

TEST_F(Dump, AnIndexThatNoRunWritesIsRefused) {
  write("dump", 2);
  const std::string path = at("dump") + "/index.json", whole = content(path);
  const auto refusal = [&](const std::string& part, const std::string& by) {
    std::string text = whole;
    text.replace(text.find(part), part.size(), by);
    std::ofstream(path) << text;
    return error_of(ExitCode::data, [&] { read_dump_index(at("dump"), ExitCode::data); });
  };
  const std::string largest = "9223372036854775807";
  for (const char* member : {"\"sequences\": 2", "\"data\": 1", "\"sequence_length\": 3"}) {
    const std::string name(member, std::string_view(member).find(':') + 2);
    EXPECT_NE(refusal(member, name + largest).find("a size is not valid"), std::string::npos) << member;
  }
  EXPECT_NE(refusal("weight", "\\u001b[2J").find("?[2J is not a plain name"), std::string::npos);
  EXPECT_NE(refusal("{", std::string(200'000, '[')).find("nested deeper than 8 levels"), std::string::npos);
}

TEST_F(Dump, ReplacesADumpAndNothingElse) {
  write("dump", 3);
  lock = {};
  const std::string unfinished = unique_name(at("dump") + "/index.json", "partial");
  std::ofstream(unfinished) << "{";
  write("dump", 1);
  lock = {};
  EXPECT_FALSE(path_exists(unfinished));
  EXPECT_FALSE(path_exists(dump_part_path(at("dump"), 2, 0)));
  EXPECT_TRUE(DumpReader(at("dump")).find("weight") != nullptr);

  std::ofstream(at("dump") + "/notes.txt") << "mine";
  expect_error(ExitCode::usage, "contains notes.txt in addition to a dump",
               [&] { lock = begin_dump_folder(at("dump"), step()); });
  EXPECT_EQ(content(at("dump") + "/notes.txt"), "mine");
  EXPECT_TRUE(path_exists(dump_part_path(at("dump"), 0, 0)));

  std::filesystem::create_directory(at("other"));
  std::ofstream(at("other") + "/rank-0000.000.h5") << "mine";
  error_of(ExitCode::usage, [&] { check_dump_folder(at("other")); });
  std::ofstream(at("other") + "/index.json") << "{\"mine\": 1}";
  error_of(ExitCode::usage, [&] { lock = begin_dump_folder(at("other"), step()); });
  EXPECT_EQ(content(at("other") + "/rank-0000.000.h5"), "mine");
  EXPECT_EQ(content(at("other") + "/index.json"), "{\"mine\": 1}");

  std::ofstream(at("file")) << "mine";
  error_of(ExitCode::usage, [&] { check_dump_folder(at("file")); });
  EXPECT_EQ(content(at("file")), "mine");
  check_dump_folder(at("deep/er"));
  EXPECT_FALSE(path_exists(at("deep")));
}

TEST_F(Dump, HasOneWriter) {
  lock = begin_dump_folder(at("dump"), step());
  expect_error(ExitCode::usage, "is being written by process",
               [&] { const FileLock second = begin_dump_folder(at("dump"), step()); });
}

TEST_F(Dump, NamesOfPartsBelongOnlyToParts) {
  EXPECT_EQ(rank_of_dump_part("rank-0012.003.h5"), 12);
  EXPECT_EQ(rank_of_dump_part(file_name(dump_part_path("x", 12345, 1234))), 12345);
  for (const char* const name :
       {"rank-12.003.h5", "rank-0012.003.h5.partial", "rank-0012.h5", "rank--001.000.h5", "x"}) {
    EXPECT_FALSE(rank_of_dump_part(name)) << name;
  }
}

TEST_F(Dump, ComparisonsNamePlaceRanksAndShapes) {
  DumpIndex index = write("a", 2);
  write("b", 1);
  // The elements of row 4, sequence 1, position 1, with another sign.
  const std::string path = dump_part_path(at("b"), 0, 0);
  {
    const DatasetList list = read_dataset_list(path, ExitCode::data);
    const std::array values{-40.0, -41.0};
    File::open_for_update(path, ExitCode::data)
        .write_at(find_dataset(list.datasets, "layer.1.x/1")->offset + 2 * 8, values.data(), sizeof(values));
  }
  const DumpReader a(at("a")), b(at("b"));
  const DumpComparison comparison = compare_dumps(a, b, default_tolerance(a.index(), b.index()));
  ASSERT_NE(comparison.first(), nullptr);
  EXPECT_EQ(comparison.first()->name, "layer.1.x");
  EXPECT_EQ(comparison.first()->location, "sequence 1, position 1, column 0");
  EXPECT_EQ(comparison.first()->values.differing, 2);
  EXPECT_EQ(comparison.first()->rank_a, 1);
  EXPECT_EQ(comparison.first()->rank_b, 0);
  EXPECT_EQ(comparison.differing(), 1);
  const std::string text = report(comparison, a, b, {});
  EXPECT_TRUE(holds(text,
                    "first difference: layer.1.x at sequence 1, position 1, column 0\n  A 40 (rank 1)\n"
                    "  B -40 (rank 0)\n"));

  index.tensors[0].name = "layer.1.y";
  index.tensors[1].shape = {4};
  write_dump_index(at("a"), index);
  const DumpReader renamed(at("a"));
  const DumpComparison unlike = compare_dumps(renamed, b, {});
  EXPECT_TRUE(unlike.tensors.empty());
  EXPECT_EQ(unlike.unlike.size(), 3u);
  EXPECT_FALSE(unlike.agree());
  EXPECT_NE(report(unlike, renamed, b, {}).find("weight is [4] in"), std::string::npos);

  index.sequence_length = 2;
  write_dump_index(at("a"), index);
  const DumpReader shorter(at("a"));
  error_of(ExitCode::usage, [&] { compare_dumps(shorter, b, {}); });
}

}  // namespace
}  // namespace ringtrain::testing
