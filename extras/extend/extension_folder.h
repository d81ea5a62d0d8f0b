// The folder of an extension: the options with which it was begun, and for each part the hashes of its inputs and
// outputs. They are checked on every call, so no result compares two models or two texts, and only complete parts count
// as done.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/storage/files.h"

namespace ringtrain {

/// Hashes of the content of files, by their paths.
using FileHashes = std::map<std::string, std::string>;
/// Options as the user gave them.
using OptionValues = std::map<std::string, std::string>;

/// One part of an extension.
struct ExtensionPart {
  std::string name, message;       // message: printed before it begins
  FileHashes reads;                // its inputs, in their current state
  std::vector<std::string> makes;  // names in the folder, of files and folders
  bool resumes = false;            // it continues what a killed call left; other parts remove that
};

/// The record of a part. made: empty until it is done.
struct PartRecord {
  FileHashes read, made;
  double seconds = 0;
};

class ExtensionFolder {
 public:
  /// Makes the folder or continues one, and keeps other processes out while this object lives. Throws Error(usage) if
  /// no extension made its content, it was begun with other options, or another process works in it.
  ExtensionFolder(std::string path, const OptionValues& options);

  /// Returns the path of a name in it.
  std::string at(const std::string& name) const { return path_ + "/" + name; }
  /// Returns the hashes of these files, and of all files in these folders.
  FileHashes hashes_of(const std::vector<std::string>& paths);
  /// Does a part with work(), unless it is done. Throws Error(usage) that names the file if an input differs from what
  /// a part has read before, or an output from what this part made.
  void run(const ExtensionPart& part, const std::function<void()>& work);
  /// Returns how long a finished part took, in the call that completed it.
  double seconds(const std::string& part) const { return records_.at(part).seconds; }

 private:
  bool is_done(const ExtensionPart& part, const std::vector<std::string>& paths);
  void check_inputs(const ExtensionPart& part) const;
  void read_record();
  void save() const;

  std::string path_;
  FileLock lock_;
  OptionValues options_;
  std::map<std::string, PartRecord> records_;                        // by part
  std::map<std::string, std::pair<FileStamp, std::string>> hashed_;  // by path: an unchanged file is read once
};

}  // namespace ringtrain
