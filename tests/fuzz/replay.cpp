// Runs a fuzzer on the files of its corpus, each whole and truncated: earlier findings of the fuzzers remain fixed in
// every build, without clang. The argument is the folder of the corpus.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);

int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape): CTest shows it
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argc > 1 ? argv[1] : ".")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    std::fprintf(stderr, "%s: %zu bytes\n", entry.path().c_str(), text.size());
    for (const std::size_t eighths : {8, 7, 4, 1, 0}) {
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size() * eighths / 8);
    }
    ++files;
  }
  return files > 0 ? 0 : 1;
}
