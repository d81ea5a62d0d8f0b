// Settings and their names in the environment.
#include "api/settings.h"

#include <fmt/format.h>

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <utility>

namespace cuda_emulator {

namespace {

std::uint64_t number(const char* variable, const std::string& text) {
  std::size_t read = 0;
  try {
    const std::uint64_t value = std::stoull(text, &read);
    if (read == text.size()) return value;
  } catch (const std::logic_error&) {  // the message below is better
  }
  throw Error(fmt::format("{}: '{}' is no number", variable, text));
}

// Sets the value from the variable, if it is set; otherwise number does not change.
template <class T>
void read_number(const char* variable, T& value) {
  if (const char* text = std::getenv(variable)) value = static_cast<T>(number(variable, text));
}

template <class Order>
void read_order(const char* variable, std::initializer_list<std::pair<const char*, Order>> names, Order& order,
                std::uint64_t* seed) {
  const char* set = std::getenv(variable);
  if (set == nullptr) return;
  const std::string text = set;
  const std::string name = text.substr(0, text.find(':'));
  for (const auto& [known, value] : names) {
    if (name != known) continue;
    order = value;
    if (name.size() < text.size() && seed != nullptr) *seed = number(variable, text.substr(name.size() + 1));
    return;
  }
  throw Error(fmt::format("{}: '{}' is no order of the emulator", variable, text));
}

}  // namespace

Settings settings_of_environment() {
  Settings read;
  read_order(
      "CUDA_EMULATOR_THREADS",
      {{"forward", ThreadOrder::forward}, {"backward", ThreadOrder::backward}, {"shuffled", ThreadOrder::shuffled}},
      read.threads, &read.threads_seed);
  read_order("CUDA_EMULATOR_STREAMS",
             {{"lazy", StreamOrder::lazy},
              {"eager", StreamOrder::eager},
              {"others_first", StreamOrder::others_first},
              {"shuffled", StreamOrder::shuffled}},
             read.streams, &read.streams_seed);
  read_order("CUDA_EMULATOR_COPIES", {{"late", CopyLanding::late}, {"early", CopyLanding::early}}, read.copies,
             nullptr);
  return read;
}

Devices devices_of_environment() {
  Devices read;
  read_number("CUDA_EMULATOR_DEVICES", read.count);
  read_number("CUDA_EMULATOR_FIRST_DEVICE", read.first);
  read_number("CUDA_EMULATOR_CAPABILITY", read.compute_capability);
  read_number("CUDA_EMULATOR_MULTIPROCESSORS", read.multiprocessors);
  read_number("CUDA_EMULATOR_MEMORY", read.memory_bytes);
  return read;
}

std::optional<DeviceFault> fault_of_environment() {
  constexpr const char* variable = "CUDA_EMULATOR_FAULT";
  const char* const set = std::getenv(variable);
  if (set == nullptr) return std::nullopt;
  const std::string text = set;
  const std::size_t first = text.find(':'), last = text.rfind(':');
  if (first == last) throw Error(fmt::format("{}: '{}' is not DEVICE:FUNCTION:NTH", variable, text));
  return DeviceFault{static_cast<int>(number(variable, text.substr(0, first))),
                     text.substr(first + 1, last - first - 1),
                     static_cast<int>(number(variable, text.substr(last + 1)))};
}

Settings& settings() {
  static Settings instance = settings_of_environment();
  return instance;
}

}  // namespace cuda_emulator
