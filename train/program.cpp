#include "train/program.h"

#include <cstdio>
#include <exception>
#include <new>

#include "framework/error.h"

namespace ringtrain {

int run_program(const char* name, const std::function<int()>& body) {
  try {
    return body();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: internal error: the machine has no more memory\n", name);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: internal error: %s\n", name, error.what());
  }
  return static_cast<int>(ExitCode::internal);
}

}  // namespace ringtrain
