// What an HDF5 file holds, read by a reader of our own: the library crashes, hangs or asks for any memory on files that
// somebody has mutated, so it never opens a file here. It is a whitelist: little-endian numbers and fixed texts,
// contiguous datasets within the file, hard links. Chunks, filters, variable lengths, links to other places or files,
// shared and committed types, and whatever else this page does not name are refused with a sentence. Both generations
// of headers are read: superblocks 0 to 3, object headers 1 and 2, groups as symbol tables and as compact links, so
// that files of other writers (h5py, any library version) open if they keep to the list. Groups and attributes in
// "dense" storage (fractal heaps; from 8 on in the new generation) are not on it.
//
// Every size is compared with the file before it is used, and the work is bounded: a reader of a file of n bytes reads
// at most 64 MiB + 8 n and sees at most a million names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/storage/hdf5_file.h"

namespace ringtrain {

struct Hdf5Layout {
  std::vector<Hdf5Dataset> datasets;  // by name, sorted; offsets set
  Hdf5Attributes attributes;          // of the file itself: whole numbers as int64, others as double, fixed texts
};

/// Returns the layout of a file. Throws Error(code) that names the file and what is wrong or not on the list, and then
/// says `remedy`: what to do about a file of this kind.
Hdf5Layout read_hdf5_layout(const File& file, ExitCode code, const std::string& remedy = "");

}  // namespace ringtrain
