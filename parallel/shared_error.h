// One rank's error becomes that of all ranks at a point that they reach together: they can still communicate, for
// instance to complete a save, before they end.
#pragma once

#include <optional>

#include "framework/error.h"
#include "parallel/communicator.h"

namespace ringtrain {

/// An error that every rank throws at the same point.
class SharedError : public Error {
 public:
  using Error::Error;
};

/// Collective. Returns the error of the lowest rank that has one, the same on every rank; nothing if no rank has one.
std::optional<SharedError> shared_error(Communicator& world, const std::optional<Error>& error, const CallSite& site);

/// Runs body. Returns the Error that it throws, if any.
template <class Body>
std::optional<Error> caught(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace ringtrain
