// An MPI that keeps a process from ending, preloaded into ranks: RINGTRAIN_HANGING_MPI says where it hangs.
//   finalize   in MPI_Finalize, before anything is done
//   finalized  in MPI_Finalize, when all is done
//   exit       in the library's exit handlers
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int ends = 0;  // whether this process is a rank that has called MPI_Finalize

static void hang_at(const char* place) {
  const char* wanted = getenv("RINGTRAIN_HANGING_MPI");
  if (!wanted || strcmp(wanted, place) != 0) return;
  for (int i = 0; i < 120; ++i) sleep(1);  // not forever: a failing test leaves no process behind
}

int MPI_Finalize(void) {
  ends = 1;
  hang_at("finalize");
  int (*next)(void);
  *(void**)&next = dlsym(RTLD_NEXT, "MPI_Finalize");
  const int code = next();
  hang_at("finalized");
  return code;
}

__attribute__((destructor)) static void at_exit(void) {
  if (ends) hang_at("exit");
}
