// Fuzzes the reader of a dump's index: any text is an index or an Error, and an index is read back as it was written.
#include "framework/dump/dump_index.h"
#include "tests/fuzz/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace ringtrain;
  const std::string text(reinterpret_cast<const char*>(data), bytes), path = fuzz::folder() + "/index.json";
  fuzz::write(path, text);
  fuzz::accepted(ExitCode::data, [&] {
    const DumpIndex index = read_dump_index(fuzz::folder(), ExitCode::data);
    for (const DumpedTensor& tensor : index.tensors) {
      const std::int64_t rows = tensor.kind == DumpKind::tokens ? index.sequences * index.sequence_length : 1;
      if (index.data * index.sequence < 0 || rows * tensor.shape.numel() < 0) std::abort();
    }
    write_dump_index(fuzz::folder(), index);
    const std::string once = read_file(path, ExitCode::data);
    write_dump_index(fuzz::folder(), read_dump_index(fuzz::folder(), ExitCode::data));
    if (read_file(path, ExitCode::data) != once) std::abort();
  });
  return 0;
}
