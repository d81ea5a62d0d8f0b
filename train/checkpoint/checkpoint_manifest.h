// manifest.json of a checkpoint: its contents, and the size and XXH3-128 hash of every file in its folder. It is
// written last, contains its own hash, and is verified before anything else in the folder is opened.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/storage/files.h"

namespace ringtrain {

struct CheckpointFile {
  std::string name;
  std::int64_t bytes = 0;
  std::string hash;
  std::optional<FileStamp> stamp = {};  // of a verified file, at that time; not part of the manifest

  template <class Self, class Visit>
  static void visit_members(Self& self, Visit& visit) {
    visit("name", self.name);
    visit("bytes", self.bytes);
    visit.hash("xxh3_128", self.hash);
  }
};

/// A model in another folder: the base of adapters.
struct BaseModel {
  std::string path;                        // from the root
  std::string hash;                        // of its weight files
  std::optional<std::int64_t> bytes = {};  // of these files; empty: an earlier version wrote the manifest
  std::optional<std::string> name = {};    // as the user or the hub names it; empty: as for bytes

  template <class Self, class Visit>
  static void visit_members(Self& self, Visit& visit) {
    visit("path", self.path);
    visit.hash("xxh3_128", self.hash);
    visit.optional("bytes", self.bytes);
    visit.optional("name", self.name);
  }
};

struct CheckpointManifest {
  std::int64_t step = 0;            // optimizer steps done, at least one
  std::int64_t samples = 0;         // sequences consumed: the sampler's cursor
  std::int64_t tokens = 0;          // tokens consumed
  std::int64_t skipped_steps = 0;   // of the steps: those without an update
  std::string data_hash;            // of the training data
  std::string tokenizer_hash = {};  // of the tokenizer of these data (data/tokenizer/tokenizer.h); "": they do not say
  std::string run = {};             // the run that made it, the same for all of its checkpoints; "": not recorded
  std::string dtype;                // training.dtype; files hold its accumulator
  struct Model {                    // a summary of the model
    std::string architecture;
    std::int64_t parameters = 0;
    std::optional<std::string> definition = {};  // the name of a program's own model; empty: the transformer

    template <class Self, class Visit>
    static void visit_members(Self& self, Visit& visit) {
      visit("architecture", self.architecture);
      visit("parameters", self.parameters);
      visit.optional("definition", self.definition);
    }
  } model;
  std::optional<BaseModel> base = {};  // of a run with lora, whose files hold only what is trained
  // The path of the model with which the run began; empty: none, or an earlier version wrote the manifest.
  std::optional<std::string> initial_weights = {};
  std::int64_t ranks = 0;  // of the run that made it: there are as many state files, each with its list
  std::vector<CheckpointFile> files;

  template <class Self, class Visit>
  static void visit_members(Self& self, Visit& visit) {
    visit("step", self.step);
    visit("samples", self.samples);
    visit("tokens", self.tokens);
    visit("skipped_steps", self.skipped_steps);
    visit("data_hash", self.data_hash);
    visit("dtype", self.dtype);
    visit.optional_hash("tokenizer_hash", self.tokenizer_hash);
    visit.optional_hash("run", self.run);
    visit("model", self.model);
    visit.optional("base", self.base);
    visit.optional("initial_weights", self.initial_weights);
    visit("ranks", self.ranks);
    visit("files", self.files);
  }
};

/// Returns the name of a rank's file.
std::string state_file_name(std::int64_t rank, std::int64_t ranks);
/// The name of the file with the run's resolved config.
inline constexpr const char* config_file_name = "config.yaml";

/// Returns the manifest as JSON, including its own hash.
std::string to_json(const CheckpointManifest& manifest);
/// Returns the manifest in the text, which must equal to_json's output byte for byte, with counts that a run can have,
/// the state files and lists of as many ranks as it says, and the config; path is used only in messages. Throws
/// Error(checkpoint), which says what is wrong with it.
CheckpointManifest parse_manifest(const std::string& text, const std::string& path);

/// Reads only the manifest of a checkpoint's folder. Throws Error(checkpoint).
CheckpointManifest read_checkpoint_manifest(const std::string& folder);

/// Returns the manifest's entry for a file as it is on disk now.
CheckpointFile describe_file(const std::string& folder, const std::string& name);
/// Reads and verifies the manifest of a checkpoint's folder, then the size and hash of each of its files. Throws
/// Error(checkpoint), which names the file and both sizes or hashes.
CheckpointManifest verify_checkpoint(const std::string& folder);

}  // namespace ringtrain
