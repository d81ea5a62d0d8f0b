// The emulated NCCL's communicators. A rank set is what one unique id connects in this process: its communicators, one
// per rank, the connections between them, and messages whose other side has not arrived yet. (nccl_remote_ranks.h has a
// communicator's information about ranks in other processes.) Communicators do not block: joining, splitting, posting a
// group, and leaving begin with the call. They only advance when somebody queries the communicator's state. The
// runtime's lock guards all of it.
//
// A split returns its part when the whole communicator has finished it (NVIDIA/nccl 1472), even with an error, and not
// before. The call itself does not return "in progress". Until then, whole and part depend on each other: an abort of
// the whole writes to the part, which must still exist.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/runtime.h"
#include "cuda_emulator_nccl.h"

namespace cuda_emulator::nccl {

class Group;
class RemoteRanks;

/// The arguments of a rank's ncclCommSplit.
struct SplitCall {
  int color = 0, key = 0;
};

/// One side of a message, by its position in a group.
struct Half {
  std::weak_ptr<Group> group;
  std::size_t index = 0;
};

struct RankSet {
  std::uint64_t unique_id = 0;
  int size = 0;
  std::map<int, ncclComm*> members;  // by rank
  int leaving = 0;                   // members that are finalizing, or have finalized
  struct Lane {
    bool sender_came = false, receiver_came = false;
    std::deque<Half> waiting;  // all sends or all receives
  };
  std::map<std::pair<int, int>, Lane> lanes;  // by sender and receiver
};

}  // namespace cuda_emulator::nccl

struct ncclComm {
  enum class Phase { joining, ready, posting, splitting, leaving, left, gone };
  std::shared_ptr<cuda_emulator::nccl::RankSet> rank_set{};  // null: of a split whose ranks are not known yet
  int rank = 0, device = 0;
  Phase phase = Phase::joining;
  ncclResult_t error = ncclSuccess, error_to_come = ncclSuccess;
  int polls_to_error = 0;
  std::string last_error{};
  int polls = 0;                                                  // remaining until the started operation may finish
  std::shared_ptr<cuda_emulator::nccl::Group> posting{};          // the group that is being posted
  std::vector<std::weak_ptr<cuda_emulator::nccl::Group>> groups;  // on streams
  std::shared_ptr<cuda_emulator::nccl::RemoteRanks> remote{};     // null: all ranks are of this process, so far
  std::vector<cuda_emulator::nccl::SplitCall> splits{};           // all of them; the last one is in progress
  ncclComm* part = nullptr;                                       // of the split in progress; or one that failed
  ncclComm** part_for = nullptr;                                  // where its caller expects it
};

namespace cuda_emulator::nccl {

/// The process's state of NCCL, and the settings of tests.
struct State {
  int version = NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
  int polls = 3;
  std::map<std::uint64_t, std::shared_ptr<RankSet>> rank_sets;
  std::vector<std::unique_ptr<ncclComm>> communicators;  // also removed ones: addresses are not reused
  std::vector<std::string> misuses;
  std::string last_error;
  struct Failure {
    std::string function;
    int calls;  // until it happens
    ncclResult_t result;
  };
  std::vector<Failure> failures;
  struct Fault {
    int device;
    int groups;          // until it happens
    ncclResult_t error;  // success: a hang
  };
  std::vector<Fault> faults;
};
State& state();

/// Records a violation of the rules. Returns NCCL's possible result.
ncclResult_t misuse(const std::string& what);
/// The communicator stops, for this reason.
ncclResult_t break_communicator(ncclComm& communicator, ncclResult_t error, const std::string& why);

// The functions of NCCL, except those without a communicator and a lock.
ncclResult_t get_version(int* version);
ncclResult_t get_unique_id(ncclUniqueId* id);
ncclResult_t join(ncclComm_t* communicator, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t* config);
ncclResult_t split(ncclComm_t communicator, int color, int key, ncclComm_t* part, const ncclConfig_t* config);
ncclResult_t finalize(ncclComm_t communicator);
ncclResult_t destroy(ncclComm_t communicator);
ncclResult_t abort(ncclComm_t communicator);
ncclResult_t get_state(ncclComm_t communicator, ncclResult_t* found);
const char* last_error();

/// Frees everything, with the runtime's lock held.
void forget_all();

/// Returns the error with which this call of the function must fail.
ncclResult_t injected(const char* function);
/// Returns whether the handle is that of a usable communicator; records a misuse if not.
bool usable(const char* function, ncclComm_t communicator);

/// A call of NCCL on a communicator: only one thread may be in one at a time.
class OnlyThread {
 public:
  OnlyThread(const char* function, ncclComm_t communicator);
  ~OnlyThread();
  OnlyThread(const OnlyThread&) = delete;
  OnlyThread& operator=(const OnlyThread&) = delete;

 private:
  const ncclComm_t communicator_;
};

/// Calls body(runtime, communicator, lock) as the function with this name, on a usable communicator.
template <class Body>
ncclResult_t call(const char* function, ncclComm_t communicator, Body body) {
  const OnlyThread only(function, communicator);
  Runtime& runtime = cuda_emulator::runtime();
  CallGuard guard(runtime);
  if (const ncclResult_t result = injected(function); result != ncclSuccess) return result;
  if (!usable(function, communicator)) return ncclInvalidArgument;
  return body(runtime, *communicator, guard.lock);
}

}  // namespace cuda_emulator::nccl
