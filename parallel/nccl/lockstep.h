// Operations of NCCL between ranks that are threads of one process, as a whole: an operation begins when every rank
// that takes part has arrived, and none of them continues before it has ended everywhere.
//
// The first use of a product by cuBLASLt loads its kernel. This may wait for every GPU of the process, and so may
// allocating memory. If a kernel of NCCL on one of them waits for a message of the rank that loads, both wait forever.
// In lockstep, no rank waits while any rank of its operation does something else. An operation includes the ranks of
// its messages, those of their operations, and so on: in a ring, all ranks. Our own kernels are loaded earlier
// (framework/cuda/kernel_loading.h).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace ringtrain {

/// How a rank's operation relates to another rank's.
struct OperationSide {
  enum class Kind { sends, receives, gathers };
  int peer = 0;
  Kind kind = Kind::sends;
  bool operator==(const OperationSide&) const = default;
};

class Lockstep {
 public:
  /// Called regularly while a rank waits; it may throw, which ends the wait.
  using Look = std::function<void()>;
  static constexpr auto look_interval = std::chrono::milliseconds(20);

  explicit Lockstep(int ranks) : ranks_(ranks) {}
  /// Returns the process's lockstep with this number, which is made for the first thread that requests it and lives as
  /// long as one has it.
  static std::shared_ptr<Lockstep> of_process(std::int64_t number, int ranks);
  /// A rank has arrived at an operation. Returns when all ranks that take part have. Two ranks arrive at their common
  /// operations in the same order.
  void begin(int rank, std::vector<OperationSide> sides, const Look& look);
  /// Its operation has ended on its GPU. Returns when it has ended on all of them.
  void end(int rank, const Look& look);

 private:
  struct RankState {
    bool waits = false;  // has arrived at an operation that has not begun
    std::vector<OperationSide> sides;
    std::shared_ptr<int> under_way;  // the number of the operation's ranks on which it has not ended
  };
  std::vector<int> joined_by(int rank) const;
  template <class Done>
  void await(std::unique_lock<std::mutex>& lock, const Look& look, Done done);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RankState> ranks_;  // by rank
};

}  // namespace ringtrain
