// Fuzzes the reader of GGUF headers: any bytes are metadata and tensors within the file or an Error(checkpoint).
#include "framework/gguf/gguf.h"
#include "tests/fuzz/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace ringtrain;
  const std::string path = fuzz::folder() + "/model.gguf";
  fuzz::write(path, std::string(reinterpret_cast<const char*>(data), bytes));
  fuzz::accepted(ExitCode::checkpoint, [&] {
    const GgufFile file = GgufFile::open(path);
    StoredTensorReader reader(file.tensors());
    for (const auto& [name, tensor] : file.tensors().tensors) {
      if (tensor.offset < 0 || tensor.offset + tensor.bytes > static_cast<std::int64_t>(bytes)) std::abort();
      double last = 0;
      if (tensor.type == StoredType::unsupported || tensor.elements() == 0) continue;
      reader.read(tensor, tensor.elements() - 1, 1, &last);
    }
    file.integer("general.alignment");
  });
  return 0;
}
