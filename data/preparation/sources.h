// Which files a text corpus is made of: files, patterns of shells and folders, walked in sorted order, each real file
// once however many links lead to it, each content once however many copies there are. A link is followed only if the
// user named it, or if it leads to what lies below an input.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ringtrain {

/// One file of text: a document, or a document a line (JSONL).
struct Source {
  std::string path;
  std::int64_t bytes = 0;
  std::string hash;    // XXH3-128 of its content
  bool lines = false;  // it is JSONL
};

struct SourceList {
  std::vector<Source> sources;  // in the order of the walk
  std::int64_t bytes = 0;       // of all sources
  // What was left out. A file that holds a NUL byte is binary; special are sockets, pipes, devices, dangling links;
  // links are those that lead out of the inputs.
  std::int64_t binary = 0, empty = 0, duplicates = 0, unreadable = 0, special = 0, links = 0;
  std::int64_t cards = 0;         // of data folders: what describes the data
  std::int64_t data_as_text = 0;  // .json and .csv in folders that hold other files too: they are not left out
};

/// Told as files are hashed: files so far, files in all, bytes so far.
using SourceProgress = std::function<void(std::int64_t files, std::int64_t all, std::int64_t bytes)>;

/// Walks the inputs and hashes every file. Throws Error(data) if an input does not exist or cannot be read, or if
/// nothing is left, and the signal's if one asks to stop (throw_if_signalled). What this program itself has
/// half-written there is passed over. A file below an input folder that cannot be read is counted. What an input names
/// itself and what lies in a data folder (data_forms.h) is read as data, or refused with an Error(data).
SourceList find_sources(const std::vector<std::string>& inputs, const SourceProgress& progress);

}  // namespace ringtrain
