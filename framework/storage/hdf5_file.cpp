// Every use of the HDF5 library is in this file, inside a Session.
#include "framework/storage/hdf5_file.h"

#include <hdf5.h>
#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace ringtrain {

static_assert(std::endian::native == std::endian::little, "datasets are copied between file and memory as they are");

namespace {

std::mutex library_mutex;

/// Holds the process-wide mutex, and disables HDF5's own printing for this thread. The library must not clean up at
/// exit: it would crash on a file that it could not write, and we close what we open. It must not lock files either, as
/// a variable that it reads at its first call may require (access_properties() says why).
class Session {
 public:
  Session() : lock_(library_mutex) {
    [[maybe_unused]] static const int no_locks = ::unsetenv("HDF5_USE_FILE_LOCKING");
    [[maybe_unused]] static const herr_t no_cleanup = H5dont_atexit();  // must precede any other call
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }

 private:
  std::lock_guard<std::mutex> lock_;
};

/// Returns the innermost message of HDF5's error stack.
std::string hdf5_message() {
  std::string message = "unknown error";
  const auto take = [](unsigned, const H5E_error2_t* error, void* result) -> herr_t {
    if (error->desc && *error->desc) *static_cast<std::string*>(result) = error->desc;
    return 1;  // the first of the upward walk is the innermost: stop
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take, &message);
  for (char& letter : message) letter = letter == '\n' ? ' ' : letter;
  return message;
}

/// The file and purpose of a call, for the message of its failure.
struct Context {
  const std::string& path;
  ExitCode code;
  template <class Result>
  Result check(Result result, const char* step) const {
    if (result < 0) fail(code, "cannot write {}: HDF5, {}: {}", path, step, hdf5_message());
    return result;
  }
};

/// Throws if the process may not have enough memory for the library to lay out this many datasets, mostly because of a
/// limit of its address space (ulimit -v). The library does not check whether its own allocations fail, and crashes.
/// (Measured: 1.3 MiB, and 2.3 KiB a dataset.)
void require_memory_for_layout(const Context& context, std::size_t datasets) {
  const std::size_t bytes = (std::size_t{8} << 20) + datasets * (std::size_t{16} << 10);
  void* const probe = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe == MAP_FAILED) {
    fail(context.code,
         "cannot write {}: there is not enough memory to lay it out: it needs {} bytes, more than the system (or "
         "ulimit -v) allows",
         context.path, bytes);
  }
  ::munmap(probe, bytes);
}

/// Owns an HDF5 identifier.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  operator hid_t() const { return id_; }
  hid_t release() { return std::exchange(id_, -1); }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

hid_t file_type(Hdf5Type type) {
  const hid_t in_file[] = {H5T_STD_U8LE,  H5T_STD_U16LE,  H5T_STD_U32LE, H5T_STD_I32LE,
                           H5T_STD_I64LE, H5T_IEEE_F32LE, H5T_IEEE_F64LE};
  return in_file[static_cast<std::size_t>(type)];  // in the order of Hdf5Type
}

hid_t access_properties(const Context& context) {
  Handle properties(context.check(H5Pcreate(H5P_FILE_ACCESS), "access properties"), H5Pclose);
  context.check(H5Pset_fclose_degree(properties, H5F_CLOSE_STRONG), "close degree");
  // The 1.8 format keeps thousands of links in a group's header. File locks are not used: network file systems do not
  // have them, and nobody else writes to a file that has a temporary name, or that a manifest seals.
  context.check(H5Pset_libver_bounds(properties, H5F_LIBVER_V18, H5F_LIBVER_V110), "format version");
  context.check(H5Pset_file_locking(properties, false, true), "file locking");
  return properties.release();
}

void write_attribute(const Context& context, hid_t file, const std::string& name, const Hdf5Value& value) {
  const std::string* text = std::get_if<std::string>(&value);
  Handle space(context.check(H5Screate(H5S_SCALAR), "attribute space"), H5Sclose);
  Handle type(H5Tcopy(text ? H5T_C_S1 : (std::holds_alternative<double>(value) ? H5T_IEEE_F64LE : H5T_STD_I64LE)),
              H5Tclose);
  context.check<hid_t>(type, "attribute type");
  if (text) {
    ensure(text->find('\0') == std::string::npos, "an HDF5 text attribute cannot hold a NUL");
    ensure(text->size() <= max_attribute_text, "an attribute's text fits an object's header");
    context.check(H5Tset_size(type, text->size() + 1), "attribute size");
    context.check(H5Tset_cset(type, H5T_CSET_UTF8), "attribute encoding");
  }
  Handle attribute(H5Acreate2(file, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  context.check<hid_t>(attribute, "new attribute");
  const auto destination = [](const auto& number) -> const void* { return &number; };
  context.check(H5Awrite(attribute, type, text ? text->c_str() : std::visit(destination, value)), "attribute value");
}

/// Keeps links and attributes of a group in its header, regardless of their number.
void keep_compact(const Context& context, hid_t properties) {
  context.check(H5Pset_attr_phase_change(properties, 65535, 0), "attribute storage");
  context.check(H5Pset_link_phase_change(properties, 65535, 0), "link storage");
}

/// Creates the groups above a dataset, each once. No time is stored in the file, so the same content has the same
/// bytes.
void create_groups(const Context& context, hid_t file, const std::string& name) {
  Handle properties(context.check(H5Pcreate(H5P_GROUP_CREATE), "group properties"), H5Pclose);
  context.check(H5Pset_obj_track_times(properties, false), "no times");
  keep_compact(context, properties);
  for (std::size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    const std::string group = name.substr(0, slash);
    if (context.check(H5Lexists(file, group.c_str(), H5P_DEFAULT), "group") > 0) continue;
    Handle id(H5Gcreate2(file, group.c_str(), H5P_DEFAULT, properties, H5P_DEFAULT), H5Gclose);
    context.check<hid_t>(id, "new group");
  }
}

/// Creates one dataset with its bytes allocated and returns their offset.
std::int64_t create_dataset(const Context& context, hid_t file, const Hdf5Dataset& dataset) {
  std::vector<hsize_t> dims(dataset.dims.begin(), dataset.dims.end());
  Handle space(
      dims.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
      H5Sclose);
  context.check<hid_t>(space, "dataset space");
  create_groups(context, file, dataset.name);
  Handle layout(context.check(H5Pcreate(H5P_DATASET_CREATE), "dataset properties"), H5Pclose);
  context.check(H5Pset_layout(layout, H5D_CONTIGUOUS), "contiguous layout");
  context.check(H5Pset_alloc_time(layout, H5D_ALLOC_TIME_EARLY), "early allocation");
  context.check(H5Pset_fill_time(layout, H5D_FILL_TIME_NEVER), "fill time");
  context.check(H5Pset_obj_track_times(layout, false), "no times");
  Handle id(H5Dcreate2(file, dataset.name.c_str(), file_type(dataset.type), space, H5P_DEFAULT, layout, H5P_DEFAULT),
            H5Dclose);
  context.check<hid_t>(id, "new dataset");
  if (dataset.count() == 0) return 0;
  const haddr_t offset = H5Dget_offset(id);
  if (offset == HADDR_UNDEF) fail(context.code, "cannot write {}: HDF5 gave {} no offset", context.path, dataset.name);
  return static_cast<std::int64_t>(offset);
}

/// Throws if the disk cannot provide these bytes. HDF5 writes a few KiB of layout when it closes the file, and cannot
/// recover if that fails.
void require_room(const Context& context, std::int64_t bytes, Hdf5Destination destination) {
  const auto& [path, code] = context;
  check_writable(parent_directory(path), code);
  require_free_bytes(path, bytes, code);
  // Reports the system's own message if the file exists, cannot be created, or may not become that large (a quota, a
  // limit).
  File probe = destination == Hdf5Destination::new_file ? File::create(path, code) : File::open_for_update(path, code);
  ensure(probe.size() == 0, "a file is laid out where nothing is");
  probe.reserve(bytes);
  probe.truncate(0);
  probe.close();
}

/// Creates the file with its attributes and datasets, whose offsets it sets.
void lay_out(const Context& context, std::vector<Hdf5Dataset>& datasets, const Hdf5Attributes& attributes) {
  require_memory_for_layout(context, datasets.size());
  const Session session;
  Handle access(access_properties(context), H5Pclose);
  Handle creation(context.check(H5Pcreate(H5P_FILE_CREATE), "creation properties"), H5Pclose);
  keep_compact(context, creation);
  context.check(H5Pset_obj_track_times(creation, false), "no times");
  Handle file(context.check(H5Fcreate(context.path.c_str(), H5F_ACC_TRUNC, creation, access), "new file"), H5Fclose);
  for (Hdf5Dataset& dataset : datasets) dataset.offset = create_dataset(context, file, dataset);
  for (const auto& [name, value] : attributes) write_attribute(context, file, name, value);
  context.check(H5Fflush(file, H5F_SCOPE_GLOBAL), "flush");
  context.check(H5Fclose(file.release()), "close");
}

}  // namespace

// ---- Hdf5Writer ----------------------------------------------------------------------------------------------------

Hdf5Writer Hdf5Writer::create(const std::string& path, std::vector<Hdf5Dataset> datasets,
                              const Hdf5Attributes& attributes, ExitCode code, Hdf5Destination destination) {
  std::int64_t bytes = 1 << 20;  // for the layout
  for (const Hdf5Dataset& dataset : datasets) {
    for (const std::int64_t dim : dataset.dims) ensure(dim >= 0, "a dataset's dimension is not negative");
    bytes += dataset.bytes();
  }
  for (const auto& [name, value] : attributes) {
    if (const auto* text = std::get_if<std::string>(&value)) bytes += static_cast<std::int64_t>(text->size());
  }
  const Context context{path, code};
  require_room(context, bytes, destination);
  lay_out(context, datasets, attributes);

  Hdf5Writer writer;
  writer.file_ = File::open_for_update(path, code);
  writer.datasets_ = std::move(datasets);
  // HDF5 made a sparse file, as long as its last dataset needs; now the disk must reserve the bytes.
  const std::int64_t length = writer.file_.size();
  require_within(writer.datasets_, length);
  writer.file_.reserve(length);
  return writer;
}

void Hdf5Writer::write(std::size_t dataset, std::int64_t begin, const void* data, std::int64_t count) {
  ensure(dataset < datasets_.size(), "a dataset that was declared");
  const Hdf5Dataset& target = datasets_[dataset];
  ensure(begin >= 0 && count >= 0 && count <= target.count() - begin, "a slice within the dataset");
  const auto element = static_cast<std::int64_t>(size_of(target.type));
  file_.write_at(target.offset + begin * element, data, static_cast<std::size_t>(count * element));
}

void Hdf5Writer::finish() {
  file_.sync();
  file_.close();
}

}  // namespace ringtrain
