// What the product does in only one file: it prints with framework/standard_streams.h, opens files with
// framework/storage/files.h, creates whole files only in the few files listed here (all others use an OutputFile),
// reads command lines with CommandLine, parses JSON with its bounded reader, and starts threads and chooses their GPU
// in one file. So the rules of these files cannot be bypassed.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

namespace fs = std::filesystem;

/// Returns "FILE:LINE: text" for each line of the product, except in these files, that contains the pattern.
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
                        "parallel/fault_injection.cpp",  // our own words
                        "bench/gpu/results.cpp", "bench/gpu/gpu_bench.cpp", "bench/gpu/targets.cpp"}),
            "");
}

TEST(Doors, FilesAreOpenedOnlyByFile) {
  EXPECT_EQ(lines_with(R"(\b([io]?fstream|fopen|freopen)\b)",
                       {"framework/system/system_memory.cpp", "framework/system/host_name.cpp"}),  // /proc
            "");
}

TEST(Doors, WholeFilesAreMadeInFewPlaces) {
  EXPECT_EQ(lines_with(R"(\b(write_file|File::create)\()",
                       {"framework/storage/files.h", "framework/storage/files.cpp", "framework/output/output_file.cpp",
                        "framework/storage/hdf5_file.cpp", "framework/storage/hdf5_datasets.cpp",  // only new files
                        "framework/storage/safetensors_writer.cpp",  // likewise, of an export under its own name
                        "framework/dump/dump_index.cpp",             // in a dump's folder, which was checked
                        "data/preparation/token_spill.cpp",          // without a name
                        "train/step/checkpoint_saver.cpp",           // in its own folder
                        "framework/output/output_folder.cpp",        // its lock
                        "train/models/adapters/kept_base.cpp",       // a mark in a base's folder, with a unique name
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

// The library's dump() throws for a path that is not UTF-8, after everything that it describes has been computed.
TEST(Doors, JsonIsWrittenByOneFunction) {
  EXPECT_EQ(lines_with(R"(\.dump\()", {"framework/storage/strict_json.cpp", "bench/gpu/results.cpp",
                                       "bench/gpu/gpu_bench.cpp", "bench/gpu/attention_group.cpp",
                                       "bench/gpu/sdpa_baseline.py", "extras/python/ringtrain_data/tokenizer_files.py",
                                       "framework/dump/tensor_dump.h"}),  // of tensors
            "");
}

// A thread uses the GPU of the thread that starts it. A thread that calls CUDA without a GPU creates a context of half
// a gigabyte on GPU 0, for every process of the machine.
TEST(Doors, ThreadsAreStartedInOnePlace) {
  EXPECT_EQ(lines_with(R"(std::async|jthread|pthread_create|std::thread\b(?!::hardware_concurrency))",
                       {"framework/system/run_aside.h", "framework/threads.h"}),
            "");
  EXPECT_EQ(lines_with("cudaSetDevice", {"framework/cuda/current_device.cpp"}), "");
}

}  // namespace
}  // namespace ringtrain::testing
