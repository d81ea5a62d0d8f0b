// The thread that receives what other processes send. It lives from the first communicator that searched for them to
// the end of the process; while it is idle, it sleeps.
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "nccl/nccl_remote_ranks.h"

namespace cuda_emulator::nccl {

namespace {

constexpr int poll_milliseconds = 1;  // if another process waits for something that cannot run yet

[[noreturn]] void carry(int woken) {
  while (true) {
    std::vector<pollfd> entries{{woken, POLLIN, 0}};
    bool stuck = false;
    {
      Runtime& runtime = cuda_emulator::runtime();
      CallGuard guard(runtime);
      std::vector<std::shared_ptr<RemoteRanks>> all;  // running work may end communicators
      for (const auto& communicator : state().communicators) {
        if (communicator->remote) all.push_back(communicator->remote);
      }
      for (const auto& remote : all) remote->receive();
      runtime.streams.wake();  // meetings may have advanced
      for (const auto& remote : all) stuck = remote->serve(runtime, guard.lock) || stuck;
      for (const auto& remote : all) {
        for (const int socket : remote->sockets()) entries.push_back({socket, POLLIN, 0});
        for (const int socket : remote->kept()) entries.push_back({socket, POLLOUT, 0});
      }
    }
    ::poll(entries.data(), entries.size(), stuck ? poll_milliseconds : -1);
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(woken, &count, sizeof count);  // of calls of wake_receiver()
  }
}

}  // namespace

void wake_receiver() {
  static const int descriptor = [] {
    const int made = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    std::thread(carry, made).detach();
    return made;
  }();
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(descriptor, &one, sizeof one);
}

}  // namespace cuda_emulator::nccl
