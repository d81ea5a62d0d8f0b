// Fuzzes the readers of both manifests, of checkpoints and of token files: any text is a manifest or an Error. A
// checkpoint's is accepted only as it would be written again.
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
  return 0;
}
