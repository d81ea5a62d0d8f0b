// Names and numbers follow the HDF5 File Format Specification, version 3.0, whose sections the comments cite.
#include "framework/storage/hdf5_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "framework/storage/hdf5_bytes.h"
#include "framework/storage/plain_text.h"

namespace ringtrain {

namespace {

// Header messages that are read, or passed over unread (section IV.A.2).
enum class Message : unsigned {
  nil = 0x00,
  dataspace = 0x01,
  link_info = 0x02,
  datatype = 0x03,
  old_fill_value = 0x04,
  fill_value = 0x05,
  link = 0x06,
  external_files = 0x07,
  layout = 0x08,
  group_info = 0x0A,
  filters = 0x0B,
  attribute = 0x0C,
  comment = 0x0D,
  old_modification_time = 0x0E,
  continuation = 0x10,
  symbol_table = 0x11,
  modification_time = 0x12,
  attribute_info = 0x15,
  reference_count = 0x16,
};

/// An element type, where it is one of ours.
struct ElementType {
  std::optional<Hdf5Type> number;
  std::size_t bytes = 0;  // of one element; of a text, its whole length
};

/// Section IV.A.2.d. Throws Refusal for what is no number of ours and no fixed text.
ElementType read_datatype(Hdf5Bytes bytes) {
  const unsigned class_and_version = bytes.u8();
  const unsigned kind = class_and_version & 15;
  const unsigned bits0 = bytes.u8(), bits1 = bytes.u8(), bits2 = bytes.u8();
  const std::uint32_t size = bytes.u32();
  if (kind == 3) {  // text: its bits are padding and encoding
    return {std::nullopt, size};
  }
  if (kind == 9) refuse("a type of variable length");
  if (kind > 1) refuse("a type that is no number and no text");
  if (size != 1 && size != 2 && size != 4 && size != 8) refuse("a number of an unusual size");
  const bool plain = bytes.u16() == 0 && bytes.u16() == 8 * size;  // bit offset, precision
  if (kind == 0) {
    if ((bits0 & 1) != 0) refuse("big-endian numbers");
    const bool negative = (bits0 & 8) != 0;
    if (!plain || (bits0 & ~8u) != 0 || bits1 != 0 || bits2 != 0) refuse("integers with padding");
    if (negative && size == 4) return {Hdf5Type::int32, size};
    if (negative && size == 8) return {Hdf5Type::int64, size};
    if (!negative && size == 1) return {Hdf5Type::uint8, size};
    if (!negative && size == 2) return {Hdf5Type::uint16, size};
    if (!negative && size == 4) return {Hdf5Type::uint32, size};
    refuse("integers of a type that is not used here");
  }
  if ((bits0 & 0x41) != 0) refuse("big-endian numbers");
  const unsigned exponent_at = bytes.u8(), exponent_bits = bytes.u8(), mantissa_at = bytes.u8(),
                 mantissa_bits = bytes.u8();
  const std::uint32_t bias = bytes.u32();
  const bool ieee = plain && bits0 == 0x20 && bits1 == 8 * size - 1 && bits2 == 0 && mantissa_at == 0;
  if (ieee && size == 4 && exponent_at == 23 && exponent_bits == 8 && mantissa_bits == 23 && bias == 127) {
    return {Hdf5Type::float32, size};
  }
  if (ieee && size == 8 && exponent_at == 52 && exponent_bits == 11 && mantissa_bits == 52 && bias == 1023) {
    return {Hdf5Type::float64, size};
  }
  refuse("floating-point numbers that are no float32 and no float64");
}

template <class T>
T number_of(const std::string& bytes) {
  T number{};
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

/// Returns the value of an attribute, of any of the types: whole numbers as int64, others as double.
Hdf5Value attribute_value(const ElementType& type, const std::string& bytes) {
  if (!type.number) return bytes.substr(0, bytes.find('\0'));
  switch (*type.number) {
    case Hdf5Type::uint8:
      return std::int64_t{number_of<std::uint8_t>(bytes)};
    case Hdf5Type::uint16:
      return std::int64_t{number_of<std::uint16_t>(bytes)};
    case Hdf5Type::uint32:
      return std::int64_t{number_of<std::uint32_t>(bytes)};
    case Hdf5Type::int32:
      return std::int64_t{number_of<std::int32_t>(bytes)};
    case Hdf5Type::int64:
      return number_of<std::int64_t>(bytes);
    case Hdf5Type::float32:
      return double{number_of<float>(bytes)};
    case Hdf5Type::float64:
      return number_of<double>(bytes);
  }
  refuse("an attribute of an unknown type");
}

/// Returns the dimensions; none: a single element. Section IV.A.2.b.
std::vector<std::int64_t> read_dataspace(Hdf5Bytes bytes) {
  const unsigned version = bytes.u8(), rank = bytes.u8(), flags = bytes.u8();
  if (version != 1 && version != 2) refuse("a dataspace of an unknown version");
  if (rank > 8) refuse("more than 8 dimensions");
  if ((flags & ~1u) != 0) refuse("permuted dimensions");
  const unsigned kind = bytes.u8();  // of version 1: reserved
  if (version == 1) bytes.skip(4);
  if (version == 2 && kind > 1) refuse("a dataspace without elements");
  std::vector<std::int64_t> dims;
  for (unsigned i = 0; i < rank; ++i) {
    const std::uint64_t dim = bytes.u64();
    if (dim > INT64_MAX) refuse("a dimension that is no count");
    dims.push_back(static_cast<std::int64_t>(dim));
  }
  return dims;
}

/// Returns address and bytes of contiguous data. Section IV.A.2.i.
std::pair<std::uint64_t, std::optional<std::uint64_t>> read_layout_message(Hdf5Bytes bytes) {
  const unsigned version = bytes.u8();
  if (version < 1 || version > 4) refuse("a data layout of an unknown version");
  if (version <= 2) bytes.skip(1);  // dimensionality: the dataspace tells it, too
  const unsigned kind = bytes.u8();
  if (kind != 1) refuse(kind == 2 ? "chunks" : "data that are not contiguous");
  if (version <= 2) {
    bytes.skip(5);
    return {bytes.u64(), std::nullopt};
  }
  const std::uint64_t address = bytes.u64();
  return {address, bytes.u64()};
}

/// What an object's header says, as far as it is needed.
struct Object {
  bool group = false;
  std::vector<std::pair<std::string, std::uint64_t>> links;      // of a new group
  std::optional<std::pair<std::uint64_t, std::uint64_t>> table;  // of an old group: B-tree, heap
  std::optional<ElementType> type;                               // of a dataset, with the next two
  std::optional<std::vector<std::int64_t>> dims;
  std::optional<std::pair<std::uint64_t, std::optional<std::uint64_t>>> data;
  std::vector<Hdf5Bytes> attributes;
};

class Reader {
 public:
  explicit Reader(const File& file) : source_(file) {}

  Hdf5Layout read() {
    const std::uint64_t root = read_superblock();
    read_group(root, "", 0, nullptr);
    std::sort(layout_.datasets.begin(), layout_.datasets.end(),
              [](const Hdf5Dataset& a, const Hdf5Dataset& b) { return a.name < b.name; });
    for (std::size_t i = 1; i < layout_.datasets.size(); ++i) {
      if (layout_.datasets[i].name == layout_.datasets[i - 1].name) refuse("two datasets of one name");
    }
    return std::move(layout_);
  }
  /// Returns which object was being read last.
  const std::string& at() const { return at_; }

 private:
  /// Returns the root group's address. Sections II.A to II.C.
  std::uint64_t read_superblock() {
    Hdf5Bytes bytes = source_.read(0, std::min<std::uint64_t>(source_.size(), 96));
    if (!bytes.starts_with("\x89HDF\r\n\x1a\n")) refuse("no HDF5 signature at its start");
    bytes.skip(8);
    const unsigned version = bytes.u8();
    if (version > 3) refuse("a superblock of an unknown version");
    unsigned offsets = 0, lengths = 0;
    if (version <= 1) {
      bytes.skip(4);
      offsets = bytes.u8();
      lengths = bytes.u8();
      bytes.skip(version == 1 ? 13 : 9);
    } else {
      offsets = bytes.u8();
      lengths = bytes.u8();
      bytes.skip(1);
    }
    if (offsets != 8 || lengths != 8) refuse("offsets or lengths that are not 8 bytes");
    if (bytes.u64() != 0) refuse("a base address");
    const std::uint64_t extension = bytes.u64();  // old: free space
    if (extension != undefined_address) refuse("a superblock extension or free-space table");
    const std::uint64_t end = bytes.u64();
    if (end > source_.size()) {
      refuse(fmt::format("{} bytes, though its header says {}: it was cut short", source_.size(), end));
    }
    if (version >= 2) return bytes.u64();
    if (bytes.u64() != undefined_address) refuse("a driver of its own");
    bytes.skip(8);  // the root's name
    return bytes.u64();
  }

  /// Reads all below a group whose name is `name` ("" or ending in '/').
  void read_group(std::uint64_t address, const std::string& name, int depth, const Object* known) {
    if (depth > 16) refuse("groups inside more than 16 others");
    const Object own = known ? Object{} : read_object(address);
    const Object& group = known ? *known : own;
    if (!group.group) refuse("something else in the place of its root group");
    if (depth == 0) {
      for (const Hdf5Bytes& attribute : group.attributes) read_attribute(attribute);
    }
    std::vector<std::pair<std::string, std::uint64_t>> links = group.links;
    if (group.table) read_symbol_tree(group.table->first, group.table->second, 0, links);
    for (const auto& [link, target] : links) {
      if (link.empty() || link == "." || link.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
        refuse("a link without a proper name");
      }
      at_ = name + link;
      const Object object = read_object(target);
      if (object.group) {
        read_group(target, name + link + "/", depth + 1, &object);
      } else {
        add_dataset(object, name + link);
      }
    }
  }

  void add_dataset(const Object& object, const std::string& name) {
    if (!object.type || !object.dims || !object.data) refuse("an object that is no group and no dataset");
    if (!object.type->number) refuse("a dataset of texts");
    Hdf5Dataset dataset{name, *object.type->number, *object.dims, 0};
    // Dimensions are multiplied only as long as the product can lie in the file.
    const std::uint64_t element = object.type->bytes, max_elements = source_.size() / element;
    std::uint64_t count = 1;
    for (const std::int64_t dim : dataset.dims) {
      if (dim != 0 && count > max_elements / static_cast<std::uint64_t>(dim)) refuse("a dataset larger than the file");
      count *= static_cast<std::uint64_t>(dim);
    }
    const auto& [address, bytes] = *object.data;
    if (count > 0) {
      if (address == undefined_address) refuse("a dataset that was never allocated");
      if (bytes && *bytes != count * element) refuse("a dataset whose sizes contradict each other");
      if (address > source_.size() || count * element > source_.size() - address) {
        refuse("a dataset that reaches beyond the file's end");
      }
      dataset.offset = static_cast<std::int64_t>(address);
    }
    layout_.datasets.push_back(std::move(dataset));
  }

  // ---- Groups of the old generation: sections III.A, III.B, III.D ---------------------------------------------------

  void read_symbol_tree(std::uint64_t address, std::uint64_t heap, int depth,
                        std::vector<std::pair<std::string, std::uint64_t>>& links) {
    if (depth > 16) refuse("a tree of names that is too deep");
    Hdf5Bytes head = source_.read(address, 8);
    if (head.starts_with("SNOD")) return read_symbols(address, heap, links);
    if (!head.starts_with("TREE")) refuse("a group without a tree of names");
    head.skip(4);
    const unsigned kind = head.u8(), level = head.u8(), used = head.u16();
    if (kind != 0) refuse("a tree that is no group's");
    Hdf5Bytes nodes = source_.read(address + 24, 16 * std::uint64_t{used} + 8);  // key, child, ..., key
    for (unsigned i = 0; i < used; ++i) {
      nodes.skip(8);
      const std::uint64_t child = nodes.u64();
      if (level == 0) {
        read_symbols(child, heap, links);
      } else {
        read_symbol_tree(child, heap, depth + 1, links);
      }
    }
  }

  void read_symbols(std::uint64_t address, std::uint64_t heap,
                    std::vector<std::pair<std::string, std::uint64_t>>& links) {
    Hdf5Bytes head = source_.read(address, 8);
    if (!head.starts_with("SNOD")) refuse("a tree of names without names");
    head.skip(6);
    const unsigned used = head.u16();
    Hdf5Bytes local = source_.read(heap, 32);
    if (!local.starts_with("HEAP")) refuse("a group without a heap of names");
    local.skip(8);
    const std::uint64_t heap_bytes = local.u64();
    local.skip(8);
    const std::uint64_t heap_at = local.u64();
    Hdf5Bytes entries = source_.read(address + 8, 40 * std::uint64_t{used});
    for (unsigned i = 0; i < used; ++i) {
      source_.count_name();
      const std::uint64_t name_at = entries.u64(), target = entries.u64();
      const std::uint32_t kind = entries.u32();
      entries.skip(20);
      if (kind > 1) refuse("a soft link");
      if (name_at >= heap_bytes) refuse("a name outside its heap");
      links.emplace_back(read_name(heap_at, heap_bytes, name_at), target);
    }
  }

  std::string read_name(std::uint64_t heap_at, std::uint64_t heap_bytes, std::uint64_t name_at) {
    constexpr std::uint64_t longest = 1024;
    if (heap_at > source_.size()) refuse("a heap beyond the file's end");
    const std::string bytes =
        source_.read(heap_at + name_at, std::min({heap_bytes - name_at, longest, source_.left(heap_at, name_at)}))
            .text();
    const std::size_t end = bytes.find('\0');
    if (end == std::string::npos) refuse("a name without an end");
    return bytes.substr(0, end);
  }

  // ---- Objects: section IV ------------------------------------------------------------------------------------------

  Object read_object(std::uint64_t address) {
    Object object;
    const Hdf5Bytes head = source_.read(address, std::min<std::uint64_t>(16, source_.left(address, 0)));
    if (head.starts_with("OHDR")) {
      read_new_header(address, object);
    } else {
      read_old_header(address, object);
    }
    return object;
  }

  struct Chunk {
    std::uint64_t address = 0, bytes = 0;
  };

  void read_old_header(std::uint64_t address, Object& object) {
    Hdf5Bytes head = source_.read(address, 16);
    if (head.u8() != 1) refuse("an object header of an unknown version");
    head.skip(1);
    unsigned messages = head.u16();
    head.skip(4);
    std::vector<Chunk> chunks{{address + 16, head.u32()}};
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      Hdf5Bytes bytes = source_.read(chunks[i].address, chunks[i].bytes);
      while (messages > 0 && bytes.left() >= 8) {
        const unsigned kind = bytes.u16(), size = bytes.u16(), flags = bytes.u8();
        bytes.skip(3);
        read_message(kind, flags, bytes.part(size), object, chunks);
        --messages;
      }
    }
  }

  void read_new_header(std::uint64_t address, Object& object) {
    Hdf5Bytes head = source_.read(address, std::min<std::uint64_t>(48, source_.left(address, 0)));
    head.skip(4);
    if (head.u8() != 2) refuse("an object header of an unknown version");
    const unsigned flags = head.u8();
    std::uint64_t used = 6;
    if ((flags & 0x20) != 0) used += 16;  // times
    if ((flags & 0x10) != 0) used += 4;   // attribute storage
    head.skip(used - 6);
    const std::uint64_t width = std::uint64_t{1} << (flags & 3);
    const std::uint64_t size = head.unsigned_of(width);
    const std::size_t message_head = (flags & 0x04) != 0 ? 6 : 4;
    std::vector<Chunk> chunks{{address + used + width, size}};
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      Hdf5Bytes bytes = source_.read(chunks[i].address, chunks[i].bytes);
      if (i > 0) {
        if (!bytes.starts_with("OCHK") || bytes.left() < 8) refuse("a header's continuation without its mark");
        bytes.skip(4);
        bytes = bytes.part(bytes.left() - 4);  // the checksum
      }
      while (bytes.left() >= message_head) {  // less than that is a gap
        const unsigned kind = bytes.u8(), message_bytes = bytes.u16(), message_flags = bytes.u8();
        bytes.skip(message_head - 4);
        read_message(kind, message_flags, bytes.part(message_bytes), object, chunks);
      }
    }
  }

  void read_message(unsigned kind, unsigned flags, Hdf5Bytes bytes, Object& object, std::vector<Chunk>& chunks) {
    source_.count_name();
    const auto message = static_cast<Message>(kind);
    if ((flags & 0x02) != 0) refuse("a shared header message");
    switch (message) {
      case Message::nil:
      case Message::old_fill_value:
      case Message::fill_value:
      case Message::group_info:
      case Message::comment:
      case Message::old_modification_time:
      case Message::modification_time:
      case Message::reference_count:
        return;
      case Message::dataspace:
        object.dims = read_dataspace(bytes);
        return;
      case Message::datatype:
        object.type = read_datatype(bytes);
        return;
      case Message::layout:
        object.data = read_layout_message(bytes);
        return;
      case Message::external_files:
        refuse("data in another file");
      case Message::filters:
        refuse("filters");
      case Message::link_info:
        object.group = true;
        return require_compact(bytes, 8, "more links in a group than it keeps in its header");
      case Message::attribute_info:
        return require_compact(bytes, 2, "more attributes than an object keeps in its header");
      case Message::link:
        return read_link(bytes, object);
      case Message::symbol_table: {
        object.group = true;
        const std::uint64_t tree = bytes.u64();
        object.table = {tree, bytes.u64()};
        return;
      }
      case Message::attribute:
        object.attributes.push_back(bytes);
        return;
      case Message::continuation: {
        const std::uint64_t address = bytes.u64();
        if (chunks.size() >= 65536) refuse("a header in too many pieces");
        chunks.push_back({address, bytes.u64()});
        return;
      }
    }
    refuse(fmt::format("a header message of kind 0x{:02X}", kind));
  }

  /// Link info and attribute info (sections IV.A.2.c and IV.A.2.v): whether a fractal heap holds the rest.
  static void require_compact(Hdf5Bytes bytes, std::uint64_t order_bytes, const char* otherwise) {
    bytes.skip(1);
    const unsigned flags = bytes.u8();
    if ((flags & 1) != 0) bytes.skip(order_bytes);
    if (bytes.u64() != undefined_address) refuse(otherwise);
  }

  /// Section IV.A.2.g.
  static void read_link(Hdf5Bytes bytes, Object& object) {
    if (bytes.u8() != 1) refuse("a link of an unknown version");
    const unsigned flags = bytes.u8();
    if ((flags & 0x08) != 0 && bytes.u8() != 0) refuse("a link that leads elsewhere");
    if ((flags & 0x04) != 0) bytes.skip(8);
    if ((flags & 0x10) != 0) bytes.skip(1);
    const std::uint64_t length = bytes.unsigned_of(std::uint64_t{1} << (flags & 3));
    std::string name = bytes.part(length).text();
    object.links.emplace_back(std::move(name), bytes.u64());
  }

  /// Section IV.A.2.m.
  void read_attribute(Hdf5Bytes bytes) {
    const unsigned version = bytes.u8();
    if (version < 1 || version > 3) refuse("an attribute of an unknown version");
    const unsigned flags = bytes.u8();
    if (version > 1 && flags != 0) refuse("an attribute with a shared type");
    const std::uint64_t name_bytes = bytes.u16(), type_bytes = bytes.u16(), space_bytes = bytes.u16();
    if (version == 3) bytes.skip(1);
    const auto take = [&](std::uint64_t size) {
      Hdf5Bytes part = bytes.part(size);
      if (version == 1) bytes.skip(std::min<std::uint64_t>((8 - size % 8) % 8, bytes.left()));
      return part;
    };
    std::string name = take(name_bytes).text();
    name.resize(std::min(name.find('\0'), name.size()));
    at_ = "attribute " + name;
    const ElementType type = read_datatype(take(type_bytes));
    if (!read_dataspace(take(space_bytes)).empty()) refuse("an attribute that is not a single value");
    const std::string value = bytes.part(type.bytes).text();
    layout_.attributes.emplace(std::move(name), attribute_value(type, value));
  }

  Hdf5Source source_;
  Hdf5Layout layout_;
  std::string at_;
};

}  // namespace

Hdf5Layout read_hdf5_layout(const File& file, ExitCode code, const std::string& remedy) {
  Reader reader(file);
  try {
    return reader.read();
  } catch (const Hdf5Refusal& refusal) {
    fail(code, "cannot read {}: as HDF5 it has {}{}; this program reads plain contiguous numbers alone{}{}",
         file.path(), refusal.what(), reader.at().empty() ? "" : " (at " + plain_text(reader.at()) + ")",
         remedy.empty() ? "" : "; ", remedy);
  }
}

}  // namespace ringtrain
