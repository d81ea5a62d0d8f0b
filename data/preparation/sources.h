// Finds the files of a text corpus: files, shell patterns, and folders, walked in sorted order. Each real file is used
// once, however many links lead to it, and each content once, however many copies exist. A link is followed only if the
// user named it, or if it leads to something below an input.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ringtrain {

/// One file of text: a document, or one document per line (JSONL).
struct Source {
  std::string path;
  std::int64_t bytes = 0;
  std::string hash;    // XXH3-128 of its content
  bool lines = false;  // whether it is JSONL
};

struct SourceList {
  std::vector<Source> sources;  // in the order of the walk
  std::int64_t bytes = 0;       // of all sources
  // What was left out. A file that contains a NUL byte is binary; special are sockets, pipes, devices, and dangling
  // links; links are those that lead out of the inputs.
  std::int64_t binary = 0, empty = 0, duplicates = 0, unreadable = 0, special = 0, links = 0;
  std::int64_t cards = 0;         // of data folders: files that describe the data
  std::int64_t data_as_text = 0;  // .json and .csv in folders that also contain other files: these are used as text
};

/// Receives the progress of hashing: files so far, all files, bytes so far.
using SourceProgress = std::function<void(std::int64_t files, std::int64_t all, std::int64_t bytes)>;

/// Walks the inputs and hashes every file. Throws Error(data) if an input does not exist or cannot be read, or if no
/// file is left, and the signal's error if one asks to stop (throw_if_signalled). Skips this program's own unfinished
/// files. Counts files below an input folder that cannot be read. Files that an input names directly and files in a
/// data folder (data_forms.h) are read as data, or refused with an Error(data).
SourceList find_sources(const std::vector<std::string>& inputs, const SourceProgress& progress);

}  // namespace ringtrain
