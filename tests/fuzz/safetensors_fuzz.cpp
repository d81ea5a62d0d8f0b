// Fuzzes the reader of safetensors headers: any bytes are tensors within the file or an Error(checkpoint). Accepted
// tensors are in the file without a gap, and can be read.
#include "framework/storage/safetensors.h"
#include "tests/fuzz/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace ringtrain;
  const std::string path = fuzz::folder() + "/model.safetensors";
  fuzz::write(path, std::string(reinterpret_cast<const char*>(data), bytes));
  fuzz::accepted(ExitCode::checkpoint, [&] {
    const StoredTensors tensors = read_safetensors_folder(fuzz::folder());
    std::int64_t sum = 0;
    StoredTensorReader reader(tensors);
    for (const auto& [name, tensor] : tensors.tensors) {
      if (tensor.offset < 8 || tensor.offset + tensor.bytes > static_cast<std::int64_t>(bytes)) std::abort();
      sum += tensor.bytes;
      double last = 0;
      const std::int64_t elements = tensor.elements();
      if (tensor.type != StoredType::unsupported && elements > 0) reader.read(tensor, elements - 1, 1, &last);
    }
    if (sum > static_cast<std::int64_t>(bytes)) std::abort();
  });
  return 0;
}
