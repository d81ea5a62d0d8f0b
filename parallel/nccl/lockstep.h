// Acts of NCCL between ranks that are threads of one process, each as a whole: it begins when every rank that it joins
// has come, and none of them goes on before it has ended everywhere.
//
// The first use of a product by cuBLASLt loads its kernel. That may wait for every GPU of the process, as getting
// memory may. If a kernel of NCCL's waits there for a message of the very rank that loads, both wait for ever. In
// lockstep none waits while any rank that it joins does something else. An act joins the ranks of its messages, those
// that their acts join, and so on: in a ring all of them. Kernels of our own are loaded before
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

/// What a rank's act has to do with another rank's.
struct OperationSide {
  enum class Kind { sends, receives, gathers };
  int peer = 0;
  Kind kind = Kind::sends;
  bool operator==(const OperationSide&) const = default;
};

class Lockstep {
 public:
  /// What is done every so often while a rank waits: it may throw, and so end the wait.
  using Look = std::function<void()>;
  static constexpr auto look_interval = std::chrono::milliseconds(20);

  explicit Lockstep(int ranks) : ranks_(ranks) {}
  /// Returns the process's of this number, which is made for the first thread that asks and lives as long as one has
  /// it.
  static std::shared_ptr<Lockstep> of_process(std::int64_t number, int ranks);
  /// A rank has come to an act. Returns when all have that it joins. Two ranks come to their acts in the same order.
  void begin(int rank, std::vector<OperationSide> sides, const Look& look);
  /// Its act has ended on its GPU. Returns when it has on all of them.
  void end(int rank, const Look& look);

 private:
  struct RankState {
    bool waits = false;  // has come to an act that has not begun
    std::vector<OperationSide> sides;
    std::shared_ptr<int> under_way;  // of the act's ranks, those where it has not ended
  };
  std::vector<int> joined_by(int rank) const;
  template <class Done>
  void await(std::unique_lock<std::mutex>& lock, const Look& look, Done done);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RankState> ranks_;  // by rank
};

}  // namespace ringtrain
