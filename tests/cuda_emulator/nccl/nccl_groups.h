// Groups of the emulated NCCL: what one rank sends and receives between ncclGroupStart and ncclGroupEnd. On its stream,
// a group is one piece of work, like NCCL's kernel. It begins when the stream reaches it, moves a message once the
// other side's group has also begun, and ends with its last message; until then it blocks the stream. So messages that
// depend on each other and are not in one group wait forever. Between two ranks, messages are matched in the order in
// which they were posted.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nccl/nccl_communicators.h"

namespace cuda_emulator::nccl {

class Group : public Meeting {
 public:
  struct Message {
    bool sends = false;
    void* data = nullptr;
    std::size_t bytes = 0;
    int type = ncclUint8;  // and the collective of which it is a part
    int peer = 0;
    bool done = false;
    Half other{};              // once it is known
    std::uint64_t number = 0;  // among those to, or from, a rank of another process
    bool needs = false;        // and that rank has been notified that it is waited for
  };
  /// A collective's work when its group begins, and after all messages have moved.
  struct Closing {
    std::function<void()> begin, end;
  };

  Group(ncclComm& of, std::shared_ptr<cuda_emulator::Stream> on) : communicator(of), stream(std::move(on)) {}
  Progress advance() override;
  std::vector<std::shared_ptr<cuda_emulator::Stream>> awaited() const override;
  /// Moves what can move now. Returns whether anything moved.
  bool move();
  /// Returns whether it has begun and may continue.
  bool runs() const { return begun && !hangs && !aborted; }
  bool done() const;

  ncclComm& communicator;
  const std::shared_ptr<cuda_emulator::Stream> stream;
  std::vector<Message> messages;
  std::vector<Closing> closings;
  bool begun = false, hangs = false, aborted = false, wrong = false;
};

/// The description of one side of a message.
struct Side {
  std::size_t bytes;
  int type;
};
/// Returns the report about a message whose sides differ.
std::string disagreement(int sender, const Side& sent, int receiver, const Side& received);

ncclResult_t group_start();
ncclResult_t bucket_end();
/// A send or a receive: of the thread's open group, or a group by itself.
ncclResult_t post(const char* function, bool sends, void* data, std::size_t count, ncclDataType_t type, int peer,
                  ncclComm_t communicator, cudaStream_t stream);
/// An operation of the thread's open group, or of a separate group: add(runtime, communicator, group) adds the
/// operation's messages to the group, and returns what is wrong with it, or nothing.
ncclResult_t post_operation(const char* function, ncclComm_t communicator, cudaStream_t stream,
                            const std::function<std::string(Runtime&, ncclComm&, Group&)>& add);
std::size_t size_of(ncclDataType_t type);
/// Returns what is wrong with memory that a rank of the communicator reads or writes, or nothing.
std::string fault_of_memory(Runtime& runtime, const ncclComm& communicator, const void* data, std::size_t bytes);
/// Returns whether the calling thread has an open group.
bool in_group();

/// Continues posting the communicator's current group: once both sides of every connection have arrived, and there were
/// enough polls, puts it on its stream. Returns whether that is done.
bool go_on_posting(Runtime& runtime, ncclComm& communicator, Streams::Lock& lock);

}  // namespace cuda_emulator::nccl
