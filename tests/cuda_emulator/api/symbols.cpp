// Reads the symbol tables of the program and its shared libraries once, from their files.
#include "api/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <unordered_map>
#include <vector>

namespace cuda_emulator {

namespace {

using Names = std::unordered_map<std::uintptr_t, std::string>;

void add_symbols(const std::string& file, std::uintptr_t base, Names& names) {
  std::ifstream stream(file, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (bytes.size() < sizeof(Elf64_Ehdr) || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0) return;
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
  if (header->e_shoff == 0 || header->e_shoff + header->e_shnum * sizeof(Elf64_Shdr) > bytes.size()) return;
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(bytes.data() + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    const Elf64_Shdr& table = sections[i];
    if (table.sh_type != SHT_SYMTAB || table.sh_offset + table.sh_size > bytes.size()) continue;
    const char* strings = bytes.data() + sections[table.sh_link].sh_offset;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(bytes.data() + table.sh_offset);
    for (std::size_t s = 0; s < table.sh_size / sizeof(Elf64_Sym); ++s) {
      if (ELF64_ST_TYPE(symbols[s].st_info) == STT_FUNC && symbols[s].st_value != 0) {
        names.emplace(base + symbols[s].st_value, strings + symbols[s].st_name);
      }
    }
  }
}

Names read_names() {
  Names names;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        const std::string path = info->dlpi_name;
        const bool system = path.starts_with("/lib") || path.starts_with("/usr") || path.starts_with("linux-vdso");
        if (!system) add_symbols(path.empty() ? "/proc/self/exe" : path, info->dlpi_addr, *static_cast<Names*>(to));
        return 0;
      },
      &names);
  return names;
}

}  // namespace

std::string function_name(const void* function) {
  static const Names names = read_names();
  const auto found = names.find(reinterpret_cast<std::uintptr_t>(function));
  if (found == names.end()) return fmt::format("kernel at {}", function);
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(found->second.c_str(), nullptr, nullptr, &status), std::free);
  if (status != 0) return found->second;
  std::string name = text.get();
  if (name.ends_with(')')) {  // the parameters are the last pair of brackets
    std::size_t at = name.size() - 1;
    for (int depth = 0;; --at) {
      depth += name[at] == ')' ? 1 : name[at] == '(' ? -1 : 0;
      if (depth == 0) break;
    }
    name.resize(at);
  }
  if (name.starts_with("void ")) name.erase(0, 5);
  return name;
}

}  // namespace cuda_emulator
