// What the product does through one door alone: it prints through framework/standard_streams.h, opens files through
// framework/storage/files.h, makes whole files in the few places listed here (all others are an OutputFile), reads
// command lines by CommandLine, parses JSON by its bounded reader, and starts threads and chooses their GPU in one
// place. A rule that stands behind the door cannot be gone round.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

namespace fs = std::filesystem;

/// Returns "FILE:LINE: text" for each line of the product, but of these files, that holds the pattern.
std::string lines_with(const std::string& pattern, const std::set<std::string>& but) {
  const std::regex wanted(pattern);
  std::string found;
  for (const char* floor :
       {"framework", "kernels", "parallel", "data", "layers", "reference", "train", "extras", "bench/gpu"}) {
    for (const auto& entry : fs::recursive_directory_iterator(source_folder() + "/" + floor)) {
      const std::string path = fs::relative(entry.path(), source_folder()).string();
      if (!entry.is_regular_file() || but.contains(path)) continue;
      std::ifstream file(entry.path());
      int number = 0;
      for (std::string line; std::getline(file, line);) {
        ++number;
        const std::string code = line.substr(0, line.find("//"));
        if (std::regex_search(code, wanted)) found += path + ":" + std::to_string(number) + ": " + line + "\n";
      }
    }
  }
  return found;
}

TEST(Doors, NothingReachesATerminalUnseen) {
  EXPECT_EQ(lines_with(R"(\b(fputs|puts|printf|fprintf|fwrite|putchar|fmt::print)\(|\b(cout|cerr|clog)\b)",
                       {"framework/standard_streams.cpp",
                        "parallel/fault_injection.cpp",  // words of our own
                        "bench/gpu/results.cpp", "bench/gpu/gpu_bench.cpp", "bench/gpu/targets.cpp"}),
            "");
}

TEST(Doors, FilesAreOpenedByFileAlone) {
  EXPECT_EQ(lines_with(R"(\b([io]?fstream|fopen|freopen)\b)",
                       {"framework/system/system_memory.cpp", "framework/system/host_name.cpp"}),  // /proc
            "");
}

TEST(Doors, WholeFilesAreMadeInFewPlaces) {
  EXPECT_EQ(lines_with(R"(\b(write_file|File::create)\()",
                       {"framework/storage/files.h", "framework/storage/files.cpp", "framework/output/output_file.cpp",
                        "framework/storage/hdf5_file.cpp", "framework/storage/hdf5_datasets.cpp",  // new files alone
                        "framework/storage/safetensors_writer.cpp",  // likewise, of an export under its own name
                        "framework/dump/dump_index.cpp",             // in a dump's folder, which was looked at
                        "data/preparation/token_spill.cpp",          // without a name
                        "train/step/checkpoint_saver.cpp",           // in a folder of its own
                        "framework/output/output_folder.cpp",        // its lock
                        "train/models/adapters/kept_base.cpp",       // a mark in a base's folder, of a name of its own
                        "train/models/export_model.cpp", "train/models/carried_tokenizer.cpp",  // within such a folder
                        "train/run/metrics_history.cpp", "train/run/run_folder.cpp",            // in the run's folder
                        "extras/extend/extension_folder.cpp", "extras/extend/extension.cpp"}),  // in its own, locked
            "");
}

TEST(Doors, CommandLinesHaveCheckedNumbers) {
  EXPECT_EQ(
      lines_with(R"(CLI::(App|Option_group)\b)", {"train/programs/command_line.h", "train/programs/command_help.h"}),
      "");
}

TEST(Doors, JsonIsParsedByTheBoundedReader) {
  EXPECT_EQ(lines_with(R"(\b(json|Json|ordered_json|basic_json<[^>]*>)::(parse|sax_parse|accept|from_\w+)\b)",
                       {"framework/storage/strict_json.cpp", "bench/gpu/gpu_bench.cpp", "bench/gpu/results.cpp"}),
            "");
}

// The library's dump() throws at a path that is not UTF-8, when all that it describes has been computed.
TEST(Doors, JsonIsWrittenByOneFunction) {
  EXPECT_EQ(lines_with(R"(\.dump\()", {"framework/storage/strict_json.cpp", "bench/gpu/results.cpp",
                                       "bench/gpu/gpu_bench.cpp", "bench/gpu/attention_group.cpp",
                                       "bench/gpu/sdpa_baseline.py", "extras/python/ringtrain_data/tokenizer_files.py",
                                       "framework/dump/tensor_dump.h"}),  // of tensors
            "");
}

// A thread works on the GPU of the thread that starts it. One that calls CUDA without a GPU of its own makes a context
// on GPU 0, of half a gigabyte, for every process of the machine.
TEST(Doors, ThreadsAreStartedInOnePlace) {
  EXPECT_EQ(lines_with(R"(std::async|jthread|pthread_create|std::thread\b(?!::hardware_concurrency))",
                       {"framework/system/run_aside.h", "framework/threads.h"}),
            "");
  EXPECT_EQ(lines_with("cudaSetDevice", {"framework/cuda/current_device.cpp"}), "");
}

}  // namespace
}  // namespace ringtrain::testing
