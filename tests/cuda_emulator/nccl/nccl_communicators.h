// The emulated NCCL's communicators. A rank set is what one unique id joins in this process: its communicators, one a
// rank, the connections between them, and messages whose other side is not there yet. (What a communicator has of ranks
// in other processes: nccl_remote_ranks.h.) Communicators do not block: joining, splitting, posting a group and leaving
// begin with the call. They go on whenever somebody asks for the communicator's state, and never otherwise. The
// runtime's lock guards all of it.
//
// A split gives its part when the whole communicator has finished it (NVIDIA/nccl 1472), even with an error, and not
// before. The call itself does not say "in progress". Until then whole and part belong together: an abort of the whole
// writes to the part, which must still be there.
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

/// What a rank calls ncclCommSplit with.
struct SplitCall {
  int colour = 0, key = 0;
};

/// One side of a message, by its place in a group.
struct Half {
  std::weak_ptr<Group> group;
  std::size_t index = 0;
};

struct RankSet {
  std::uint64_t unique_id = 0;
  int size = 0;
  std::map<int, ncclComm*> members;  // by rank
  int leaving = 0;                   // members that finalize, or have
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
  int polls = 0;                                                  // left until what was begun may be done
  std::shared_ptr<cuda_emulator::nccl::Group> posting{};          // what is being posted
  std::vector<std::weak_ptr<cuda_emulator::nccl::Group>> groups;  // on streams
  std::shared_ptr<cuda_emulator::nccl::RemoteRanks> remote{};     // null: all ranks are of this process, so far
  std::vector<cuda_emulator::nccl::SplitCall> splits{};           // all of them, the last one under way
  ncclComm* part = nullptr;                                       // of the split under way; or one that failed
  ncclComm** part_for = nullptr;                                  // where its caller wants it
};

namespace cuda_emulator::nccl {

/// What the process has of NCCL, and what tests have set.
struct State {
  int version = NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
  int polls = 3;
  std::map<std::uint64_t, std::shared_ptr<RankSet>> rank_sets;
  std::vector<std::unique_ptr<ncclComm>> communicators;  // also those that are gone: addresses do not come back
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

/// Notes what was done against the rules. Returns what NCCL might answer.
ncclResult_t misuse(const std::string& what);
/// The communicator can do nothing more, for this reason.
ncclResult_t break_communicator(ncclComm& communicator, ncclResult_t error, const std::string& why);

// The functions of NCCL, but for what takes no communicator and no lock.
ncclResult_t get_version(int* version);
ncclResult_t get_unique_id(ncclUniqueId* id);
ncclResult_t join(ncclComm_t* communicator, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t* config);
ncclResult_t split(ncclComm_t communicator, int colour, int key, ncclComm_t* part, const ncclConfig_t* config);
ncclResult_t finalize(ncclComm_t communicator);
ncclResult_t destroy(ncclComm_t communicator);
ncclResult_t abort(ncclComm_t communicator);
ncclResult_t get_state(ncclComm_t communicator, ncclResult_t* found);
const char* last_error();

/// Frees everything, with the runtime's lock held.
void forget_all();

/// Returns what this call of the function is to fail with.
ncclResult_t injected(const char* function);
/// Returns whether the handle is that of a communicator that can be used; notes a misuse if not.
bool usable(const char* function, ncclComm_t communicator);

/// A call of NCCL on a communicator: no two threads may be in one at a time.
class OnlyThread {
 public:
  OnlyThread(const char* function, ncclComm_t communicator);
  ~OnlyThread();
  OnlyThread(const OnlyThread&) = delete;
  OnlyThread& operator=(const OnlyThread&) = delete;

 private:
  const ncclComm_t communicator_;
};

/// Calls body(runtime, communicator, lock) as the function of this name, on a communicator that can be used.
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
