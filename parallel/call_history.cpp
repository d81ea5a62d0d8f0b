#include "parallel/call_history.h"
#include "framework/profile/clock.h"

#include <cstring>

namespace ringtrain {

std::string described(const CallSite& site) {
  std::string text = site.operation;
  if (site.layer >= 0) text += fmt::format(", layer {}", site.layer);
  if (site.hop >= 0) text += fmt::format(", hop {}", site.hop);
  return text;
}

bool same_site(const CallSite& a, const CallSite& b) {
  return a.layer == b.layer && a.hop == b.hop &&
         (a.operation == b.operation || std::strcmp(a.operation, b.operation) == 0);
}

std::string unfinished(const CallSite& site, const ExchangeSide& send, const ExchangeSide& receive) {
  std::string text = described(site) + ": ";
  if (!send.done) text += fmt::format("rank {} has not received the {} bytes sent to it", send.peer, send.bytes);
  if (!send.done && !receive.done) text += ", and ";
  if (!receive.done) text += fmt::format("rank {} has not sent the {} expected bytes", receive.peer, receive.bytes);
  return text;
}

std::string timeout_text(const std::string& name, double seconds, const std::string& where) {
  return fmt::format("{} waited {} s (mesh.timeout_seconds) {}; if ranks are only slow, raise the timeout", name,
                     seconds, where);
}

std::string rank_name(std::size_t rank, std::size_t size) {
  return fmt::format("rank {} of {}", rank, size);
}

std::uint64_t CallHistory::started(const CallSite& site, int to, std::size_t sent_bytes, int from,
                                   std::size_t received_bytes) {
  const std::uint64_t number = ++last_;
  call(number) = {number, site, to, from, sent_bytes, received_bytes, false};
  return number;
}

void CallHistory::finished(std::uint64_t number) {
  if (call(number).number == number) call(number).done = true;
  if (waiting_ != number) return;
  waiting_ = 0;
  since_ = Clock::now();
}

void CallHistory::waits_for(std::uint64_t number, const CallSite& site) {
  if (waiting_ == number) return;
  waiting_ = number;
  waiting_site_ = site;
  since_ = Clock::now();
}

std::string CallHistory::text(std::string_view indent) const {
  const double seconds = seconds_since(since_);
  std::string text = waiting_ == 0 ? fmt::format("{}no call in progress for {:.1f} s; last calls:\n", indent, seconds)
                                   : fmt::format("{}has waited {:.1f} s in call {} ({}); last calls:\n", indent,
                                                 seconds, waiting_, described(waiting_site_));
  for (std::uint64_t number = last_ > kept ? last_ - kept + 1 : 1; number <= last_; ++number) {
    const Call& call = calls_[number % kept];
    text += fmt::format("{}  {:>6} {}", indent, number, described(call.site));
    if (call.to != no_peer) text += fmt::format("; {} bytes to rank {}", call.sent_bytes, call.to);
    if (call.from != no_peer) text += fmt::format("; {} bytes from rank {}", call.received_bytes, call.from);
    text += call.done ? "\n" : " (in progress)\n";
  }
  return text;
}

}  // namespace ringtrain
