// Fuzzes the reader of token files: the header of any file, and, where that is accepted, the whole opening of the same
// file with a manifest that fits it, as a forger would make it. What opens is read to its end.
#include "data/token_file.h"
#include "data/token_manifest.h"
#include "framework/storage/hash.h"
#include "framework/storage/hdf5_file.h"
#include "tests/fuzz/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace ringtrain;
  const std::string path = fuzz::folder() + "/tokens.h5", content(reinterpret_cast<const char*>(data), bytes);
  fuzz::write(path, content);
  TokenManifest manifest{static_cast<std::int64_t>(bytes), hash_bytes(content), {}};
  const bool plain = fuzz::accepted(ExitCode::data, [&] {
    const Hdf5Reader reader = Hdf5Reader::open(path, ExitCode::data);
    for (const Hdf5Dataset& dataset : reader.datasets()) {
      manifest.datasets.push_back({dataset.name, name_of(dataset.type), dataset.count(), dataset.offset});
      std::string values(static_cast<std::size_t>(dataset.bytes()), '\0');
      reader.read(dataset, 0, values.data(), dataset.count());
    }
  });
  if (!plain) return 0;
  for (const auto& dataset : manifest.datasets) {  // JSON holds UTF-8 alone
    if (dataset.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_/.0123456789") != std::string::npos) return 0;
  }
  fuzz::write(manifest_path(path), to_json(manifest));
  fuzz::accepted(ExitCode::data, [&] {
    const auto file = TokenFile::open(path);
    std::vector<std::int32_t> tokens(file->token_count());
    file->read(0, tokens);
    std::vector<float> weights(tokens.size());
    file->read_weights(0, weights);
  });
  return 0;
}
