// The folder of an extension: which options it was begun with, and of each part the hashes of what it read and made.
// They are checked on every call, so that no result compares two models or two texts, and only what is whole counts as
// done.
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
/// Options as they were given.
using OptionValues = std::map<std::string, std::string>;

/// One part of an extension.
struct ExtensionPart {
  std::string name, message;       // message: said before it begins
  FileHashes reads;                // its inputs, as they are now
  std::vector<std::string> makes;  // names in the folder, of files and folders
  bool resumes = false;            // it continues what a killed one left; of others that is removed
};

/// What is kept of a part. made: empty until it is done.
struct PartRecord {
  FileHashes read, made;
  double seconds = 0;
};

class ExtensionFolder {
 public:
  /// Makes the folder or continues one, and keeps other processes out as long as this object lives. Throws Error(usage)
  /// if it holds what no extension made, was begun with other options, or another process works in it.
  ExtensionFolder(std::string path, const OptionValues& options);

  /// Returns the path of a name in it.
  std::string at(const std::string& name) const { return path_ + "/" + name; }
  /// Returns the hashes of these files, and of all files below these folders.
  FileHashes hashes_of(const std::vector<std::string>& paths);
  /// Does a part by work(), unless it is done. Throws Error(usage) that names the file if an input is not what a part
  /// has read before, or an output not what this part made.
  void run(const ExtensionPart& part, const std::function<void()>& work);
  /// Returns how long a part that is done took, in the call that ended it.
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
  std::map<std::string, std::pair<FileStamp, std::string>> hashed_;  // by path: a file is read once while it stays
};

}  // namespace ringtrain
