// Fuzzes the readers of both manifests, of checkpoints and of token files, and of lists of datasets: any text is valid
// or an Error. A checkpoint's manifest is accepted only in the form in which it would be written again. The datasets of
// a list are within its file.
#include "data/token_manifest.h"
#include "framework/storage/hash.h"
#include "tests/fuzz/fuzz_file.h"
#include "train/checkpoint/checkpoint_manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace ringtrain;
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  fuzz::accepted(ExitCode::checkpoint, [&] {
    if (to_json(parse_manifest(text, "manifest.json")) != text) std::abort();
  });
  const std::string path = fuzz::folder() + "/tokens.h5";
  fuzz::write(manifest_path(path), text);
  fuzz::accepted(ExitCode::data, [&] { read_manifest(path); });
  const std::string state = fuzz::folder() + "/state.h5";
  fuzz::write(state, std::string(4096, 'x'));
  fuzz::write(dataset_list_path(state), text);
  fuzz::accepted(ExitCode::checkpoint, [&] {
    const File file = File::open(state, ExitCode::checkpoint);
    for (const Hdf5Dataset& dataset : read_dataset_list(state, ExitCode::checkpoint).datasets) {
      std::string values(static_cast<std::size_t>(dataset.bytes()), '\0');
      file.read_at(dataset.offset, values.data(), values.size());
    }
  });
  return 0;
}
