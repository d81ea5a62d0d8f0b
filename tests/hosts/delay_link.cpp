// A wire with a delay: connects two network namespaces with a pair of tun devices and forwards each packet after a
// delay, in both directions. (The kernel's own delay, netem, is not available everywhere; tun is.) It does not limit
// bandwidth: a token bucket can be added to the devices as to any other. Packets are forwarded as the kernel makes
// them, up to 64 KiB, so the wire costs the machine almost nothing.
//   delay_link NAMESPACE DEVICE NAMESPACE DEVICE SECONDS    creates the devices, prints "ready", and runs until it is
//                                                           killed; ends with 77 if tun devices are not available
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void end_with(int code, const std::string& what) {
  std::fprintf(stderr, "delay_link: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(code);
}

/// Creates a device in a namespace. Returns its descriptor, whose reads do not block.
int make_device(const std::string& name_space, const std::string& name) {
  constexpr int skipped = 77;
  const int place = ::open(("/var/run/netns/" + name_space).c_str(), O_RDONLY | O_CLOEXEC);
  if (place < 0 || ::setns(place, CLONE_NEWNET) != 0) end_with(1, "namespace " + name_space);
  ::close(place);
  const int device = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (device < 0) end_with(skipped, "/dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  if (::ioctl(device, TUNSETIFF, &request) != 0) end_with(skipped, "device " + name);
  // The header before each packet describes remaining work: checksums, segments. It is forwarded with the packet.
  if (::ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) != 0) end_with(1, "offloads of " + name);
  return device;
}

struct Packet {
  Clock::time_point due;
  std::vector<char> bytes;
};

struct Direction {
  int from, to;
  std::deque<Packet> under_way;

  void take(Clock::duration delay) {
    static std::array<char, 1 << 17> buffer;
    for (ssize_t n; (n = ::read(from, buffer.data(), buffer.size())) > 0;) {
      under_way.push_back({Clock::now() + delay, {buffer.data(), buffer.data() + n}});
    }
  }
  void hand_on() {
    for (; !under_way.empty() && under_way.front().due <= Clock::now(); under_way.pop_front()) {
      const Packet& packet = under_way.front();
      // A device that is down loses its packets, like a wire.
      [[maybe_unused]] const ssize_t written = ::write(to, packet.bytes.data(), packet.bytes.size());
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: delay_link NAMESPACE DEVICE NAMESPACE DEVICE SECONDS\n");
    return 2;
  }
  const int first = make_device(argv[1], argv[2]), second = make_device(argv[3], argv[4]);
  const auto delay = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::atof(argv[5])));
  std::array<Direction, 2> directions{{{first, second, {}}, {second, first, {}}}};
  std::puts("ready");
  std::fflush(stdout);
  while (true) {
    auto next = Clock::now() + std::chrono::seconds(1);
    for (const Direction& one : directions) {
      if (!one.under_way.empty()) next = std::min(next, one.under_way.front().due);
    }
    const auto left = std::max<Clock::duration>(next - Clock::now(), Clock::duration::zero());
    const timespec limit{static_cast<time_t>(left / std::chrono::seconds(1)),
                         static_cast<long>(std::chrono::nanoseconds(left % std::chrono::seconds(1)).count())};
    std::array<pollfd, 2> entries{{{first, POLLIN, 0}, {second, POLLIN, 0}}};
    if (::ppoll(entries.data(), entries.size(), &limit, nullptr) < 0 && errno != EINTR) end_with(1, "poll");
    for (Direction& one : directions) {
      one.take(delay);
      one.hand_on();
    }
  }
}
