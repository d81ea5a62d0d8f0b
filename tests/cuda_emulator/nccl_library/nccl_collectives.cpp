#include "nccl_collectives.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <vector>

namespace cuda_emulator::nccl {

namespace {

enum class Kind { message, reduce_scatter, reduce, all_gather, broadcast };

using Bytes = std::vector<std::uint8_t>;

const std::uint8_t* at(const void* data, std::size_t offset) {
  return static_cast<const std::uint8_t*>(data) + offset;
}
std::uint8_t* at(void* data, std::size_t offset) {
  return static_cast<std::uint8_t*>(data) + offset;
}

float widened(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}
std::uint16_t narrowed(float value) {  // to the nearest, ties to even
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// sum[i] += x[i].
template <class T>
void add_as(Bytes& sum, const Bytes& x) {
  for (std::size_t i = 0; i < sum.size(); i += sizeof(T)) {
    T a{}, b{};
    std::memcpy(&a, &sum[i], sizeof(T));
    std::memcpy(&b, &x[i], sizeof(T));
    if constexpr (std::is_same_v<T, std::uint16_t>) {
      a = narrowed(widened(a) + widened(b));
    } else {
      a += b;
    }
    std::memcpy(&sum[i], &a, sizeof(T));
  }
}
void add(ncclDataType_t type, Bytes& sum, const Bytes& x) {
  if (type == ncclFloat32) add_as<float>(sum, x);
  if (type == ncclFloat64) add_as<double>(sum, x);
  if (type == ncclBfloat16) add_as<std::uint16_t>(sum, x);
}
bool can_add(ncclDataType_t type) {
  return type == ncclFloat32 || type == ncclFloat64 || type == ncclBfloat16;
}

/// The arguments of a call, with bytes instead of elements.
struct Call {
  const char* function;
  Kind kind;
  const void* from;
  void* to;
  std::size_t bytes;  // of a rank's part
  ncclDataType_t type;
  int rank, ranks;

  Group::Message message(bool sends, void* data, int peer) const {
    return {sends, data, bytes, type + 100 * static_cast<int>(kind), peer};
  }
};

/// The parts of a sum are gathered in host memory.
struct Parts {
  explicit Parts(const Call& call) : by_rank(static_cast<std::size_t>(call.ranks), Bytes(call.bytes)) {}
  Bytes& of(int rank) { return by_rank[static_cast<std::size_t>(rank)]; }
  std::vector<Bytes> by_rank;
};

/// This rank's part of a sum: receives the parts of all other ranks and adds them.
void gather_sum(const Call& call, const void* own, std::vector<Group::Message>& messages,
                std::vector<Group::Closing>& closings) {
  const auto parts = std::make_shared<Parts>(call);
  for (int k = 1; k < call.ranks; ++k) {
    const int peer = (call.rank + k) % call.ranks;
    messages.push_back(call.message(false, parts->of(peer).data(), peer));
  }
  const auto begin = [call, parts, own] {
    std::memcpy(parts->of(call.rank).data(), own, call.bytes);
    std::memset(call.to, 0xff, call.bytes);
  };
  const auto end = [call, parts] {
    Bytes sum = parts->of((call.rank + 1) % call.ranks);
    for (int k = 2; k <= call.ranks; ++k) add(call.type, sum, parts->of((call.rank + k) % call.ranks));
    std::memcpy(call.to, sum.data(), call.bytes);
  };
  closings.push_back({begin, end});
}

/// Returns what is wrong with the call's memory: from has this many parts, and to this many.
std::string fault_of(Runtime& runtime, const ncclComm& communicator, const Call& call, std::size_t parts_from,
                     std::size_t parts_to) {
  std::string fault = fault_of_memory(runtime, communicator, call.from, parts_from * call.bytes);
  if (fault.empty()) fault = fault_of_memory(runtime, communicator, call.to, parts_to * call.bytes);
  // In place means that a rank's part has the same address in both; otherwise they must not overlap.
  const std::size_t own = static_cast<std::size_t>(call.rank) * call.bytes;
  const void* const part_from = at(call.from, parts_from > 1 ? own : 0);
  const void* const part_to = at(call.to, parts_to > 1 ? own : 0);
  const bool apart =
      at(call.from, parts_from * call.bytes) <= call.to || at(call.to, parts_to * call.bytes) <= call.from;
  if (fault.empty() && !apart && part_from != part_to) fault = "memory that overlaps, but not in place";
  return fault;
}

/// Posts the messages and closings that make(call, messages, closings) creates.
template <class Make>
ncclResult_t post_collective(const char* function, Kind kind, const void* from, void* to, std::size_t count,
                             ncclDataType_t type, int root, ncclComm_t communicator, cudaStream_t stream, Make make) {
  return post_operation(function, communicator, stream, [&](Runtime& runtime, ncclComm& one, Group& group) {
    const int ranks = one.rank_set->size;
    const Call call{function, kind, from, to, count * size_of(type), type, one.rank, ranks};
    const bool sums = kind == Kind::reduce_scatter || kind == Kind::reduce;
    const auto all = static_cast<std::size_t>(ranks);
    std::string fault =
        fault_of(runtime, one, call, kind == Kind::reduce_scatter ? all : 1, kind == Kind::all_gather ? all : 1);
    if (fault.empty() && (root < 0 || root >= ranks)) fault = fmt::format("root {} of {} ranks", root, ranks);
    if (fault.empty() && sums && !can_add(type)) fault = "a sum of what the emulator does not add";
    if (fault.empty()) make(call, group.messages, group.closings);
    return fault;
  });
}

}  // namespace

ncclResult_t reduce_scatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                            ncclComm_t communicator, cudaStream_t stream) {
  const auto make = [](const Call& call, auto& messages, auto& closings) {
    const auto part = [=](int rank) { return at(call.from, static_cast<std::size_t>(rank) * call.bytes); };
    for (int k = 1; k < call.ranks; ++k) {
      const int peer = (call.rank + k) % call.ranks;
      messages.push_back(call.message(true, const_cast<std::uint8_t*>(part(peer)), peer));
    }
    gather_sum(call, part(call.rank), messages, closings);
    if (part(call.rank) != call.to) return;
    const auto lose_others = [=] {
      for (int rank = 0; rank < call.ranks; ++rank) {
        if (rank != call.rank) std::memset(const_cast<std::uint8_t*>(part(rank)), 0xff, call.bytes);
      }
    };
    closings.push_back({[] {}, lose_others});
  };
  return post_collective("ncclReduceScatter", Kind::reduce_scatter, from, to, count, type, 0, communicator, stream,
                         make);
}

ncclResult_t reduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t, int root,
                    ncclComm_t communicator, cudaStream_t stream) {
  const auto make = [root](const Call& call, auto& messages, auto& closings) {
    if (call.rank == root) return gather_sum(call, call.from, messages, closings);
    messages.push_back(call.message(true, const_cast<void*>(call.from), root));
    if (call.from == call.to) closings.push_back({[] {}, [=] { std::memset(call.to, 0xff, call.bytes); }});
  };
  return post_collective("ncclReduce", Kind::reduce, from, to, count, type, root, communicator, stream, make);
}

ncclResult_t all_gather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t communicator,
                        cudaStream_t stream) {
  const auto make = [](const Call& call, auto& messages, auto& closings) {
    const auto part = [=](int rank) { return at(call.to, static_cast<std::size_t>(rank) * call.bytes); };
    for (int k = 1; k < call.ranks; ++k) {
      const int peer = (call.rank + k) % call.ranks;
      messages.push_back(call.message(true, const_cast<void*>(call.from), peer));
      messages.push_back(call.message(false, part(peer), peer));
    }
    closings.push_back({[=] { std::memmove(part(call.rank), call.from, call.bytes); }, [] {}});
  };
  return post_collective("ncclAllGather", Kind::all_gather, from, to, count, type, 0, communicator, stream, make);
}

ncclResult_t broadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                       ncclComm_t communicator, cudaStream_t stream) {
  const auto make = [root](const Call& call, auto& messages, auto& closings) {
    if (call.rank != root) return messages.push_back(call.message(false, call.to, root));
    for (int k = 1; k < call.ranks; ++k) {
      messages.push_back(call.message(true, const_cast<void*>(call.from), (call.rank + k) % call.ranks));
    }
    closings.push_back({[=] { std::memmove(call.to, call.from, call.bytes); }, [] {}});
  };
  return post_collective("ncclBroadcast", Kind::broadcast, from, to, count, type, root, communicator, stream, make);
}

}  // namespace cuda_emulator::nccl
