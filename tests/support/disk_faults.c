// Simulates disk failures: preloaded into a program (LD_PRELOAD), it counts the system calls that change files whose
// path contains RINGTRAIN_FAULT_PATH (in which * stands for any text), and injects the fault that the environment
// describes at one of them. As an external observer of which faults a save survives, it also sees what libraries do.
//   RINGTRAIN_FAULT_READS=1        also counts calls that only look or read (open, read, stat, a folder's entries)
//   RINGTRAIN_FAULT_LOG=FILE       append a line "NUMBER CALL PATH" for each counted call
//   RINGTRAIN_FAULT_AT=NUMBER      the call (from 1, over all threads) at which
//   RINGTRAIN_FAULT_ERROR=ERRNO    it fails with this, and from then on if RINGTRAIN_FAULT_LASTS is set; without it
//                                  the process gets RINGTRAIN_FAULT_SIGNAL (a number; SIGKILL) as soon as that call
//                                  has returned
//   RINGTRAIN_FAULT_NO_LOCKS=1     no file can be locked, for any path
//   RINGTRAIN_FAULT_SLOW=CALL:MS   every counted call of that name takes so many milliseconds longer
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_long calls;

static void log_call(long number, const char* call, const char* path) {
  const char* file = getenv("RINGTRAIN_FAULT_LOG");
  if (!file) return;
  char line[4352];
  const int length = snprintf(line, sizeof line, "%ld %s %s\n", number, call, path);
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  syscall(SYS_write, fd, line, (size_t)length);
  syscall(SYS_close, fd);
}

// Returns the number of a call that counts, 0 for one that does not; < 0: it must fail, with errno set.
static long count(const char* call, const char* path) {
  const char* part = getenv("RINGTRAIN_FAULT_PATH");
  char pattern[512];
  if (!part || !path || snprintf(pattern, sizeof pattern, "*%s*", part) >= (int)sizeof pattern) return 0;
  if (fnmatch(pattern, path, 0) != 0) return 0;
  const long number = atomic_fetch_add(&calls, 1) + 1;
  log_call(number, call, path);
  const char* slow = getenv("RINGTRAIN_FAULT_SLOW");
  if (slow && strncmp(slow, call, strlen(call)) == 0 && slow[strlen(call)] == ':') {
    const long ms = atol(slow + strlen(call) + 1);
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
  }
  const char *at = getenv("RINGTRAIN_FAULT_AT"), *error = getenv("RINGTRAIN_FAULT_ERROR");
  if (!at || !error) return number;
  const int now = number == atol(at) || (number > atol(at) && getenv("RINGTRAIN_FAULT_LASTS"));
  // A full disk can still free space: calls that remove or close do not fail.
  const int frees = strstr(call, "unlink") || strstr(call, "rmdir") || strstr(call, "close");
  if (!now || frees) return number;
  errno = atoi(error);
  return -1;
}

static int reads_count(void) {
  return getenv("RINGTRAIN_FAULT_READS") != NULL;
}

static void after(long number) {
  const char* at = getenv("RINGTRAIN_FAULT_AT");
  if (number <= 0 || !at || number != atol(at) || getenv("RINGTRAIN_FAULT_ERROR")) return;
  const char* chosen = getenv("RINGTRAIN_FAULT_SIGNAL");
  kill(getpid(), chosen ? atoi(chosen) : SIGKILL);
}

static const char* path_of(int fd, char* buffer, size_t size) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, buffer, size - 1);
  if (length < 0) return NULL;
  buffer[length] = 0;
  return buffer;
}

static const char* path_at(int folder, const char* path, char* buffer, size_t size) {
  if (path[0] == '/' || folder == AT_FDCWD) return path;
  if (!path_of(folder, buffer, size)) return path;
  const size_t used = strlen(buffer);
  snprintf(buffer + used, size - used, "/%s", path);
  return buffer;
}

#define NEXT(result, name, parameters) \
  static result(*next) parameters;     \
  if (!next) next = (result(*) parameters)dlsym(RTLD_NEXT, name)

#define RUN(type, call, path, ...)       \
  const long number = count(call, path); \
  if (number < 0) return -1;             \
  const type result = next(__VA_ARGS__); \
  const int error = errno;               \
  after(number);                         \
  errno = error;                         \
  return result

#define ON_PATH(name, parameters, path, ...) \
  int name parameters {                      \
    NEXT(int, #name, parameters);            \
    RUN(int, #name, path, __VA_ARGS__);      \
  }

#define ON_FD(type, name, parameters, ...)                             \
  type name parameters {                                               \
    NEXT(type, #name, parameters);                                     \
    char buffer[4096];                                                 \
    RUN(type, #name, path_of(fd, buffer, sizeof buffer), __VA_ARGS__); \
  }

#define CHANGES(flags) ((flags) & (O_CREAT | O_WRONLY | O_RDWR))

// Opening to read changes nothing, and counts only if reads do.
#define OPEN(name)                                                                      \
  int name(const char* path, int flags, ...) {                                          \
    NEXT(int, #name, (const char*, int, ...));                                          \
    va_list list;                                                                       \
    va_start(list, flags);                                                              \
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;       \
    va_end(list);                                                                       \
    RUN(int, "open", CHANGES(flags) || reads_count() ? path : NULL, path, flags, mode); \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                                                \
  int name(int folder, const char* path, int flags, ...) {                                                          \
    NEXT(int, #name, (int, const char*, int, ...));                                                                 \
    va_list list;                                                                                                   \
    va_start(list, flags);                                                                                          \
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;                                   \
    va_end(list);                                                                                                   \
    char buffer[4352];                                                                                              \
    RUN(int, "open", CHANGES(flags) || reads_count() ? path_at(folder, path, buffer, sizeof buffer) : NULL, folder, \
        path, flags, mode);                                                                                         \
  }
OPENAT(openat)
OPENAT(openat64)

ON_PATH(mkstemp, (char* path), path, path)
ON_PATH(mkdir, (const char* path, mode_t mode), path, path, mode)
ON_PATH(unlink, (const char* path), path, path)
ON_PATH(rmdir, (const char* path), path, path)
ON_PATH(rename, (const char* from, const char* to), from, from, to)
int unlinkat(int folder, const char* path, int flags) {
  NEXT(int, "unlinkat", (int, const char*, int));
  char buffer[4352];
  RUN(int, "unlinkat", path_at(folder, path, buffer, sizeof buffer), folder, path, flags);
}

ON_FD(ssize_t, write, (int fd, const void* data, size_t bytes), fd, data, bytes)
ON_FD(ssize_t, pwrite, (int fd, const void* data, size_t bytes, off_t at), fd, data, bytes, at)
ON_FD(ssize_t, pwrite64, (int fd, const void* data, size_t bytes, off64_t at), fd, data, bytes, at)
ON_FD(int, fsync, (int fd), fd)
ON_FD(int, fdatasync, (int fd), fd)
ON_FD(int, ftruncate, (int fd, off_t bytes), fd, bytes)
ON_FD(int, ftruncate64, (int fd, off64_t bytes), fd, bytes)
ON_FD(int, fallocate, (int fd, int mode, off_t begin, off_t bytes), fd, mode, begin, bytes)
ON_FD(int, fallocate64, (int fd, int mode, off64_t begin, off64_t bytes), fd, mode, begin, bytes)

// ---- Calls that only look or read
// ------------------------------------------------------------------------------------

#define LOOK_ON_PATH(name, parameters, path, ...)              \
  int name parameters {                                        \
    NEXT(int, #name, parameters);                              \
    RUN(int, #name, reads_count() ? path : NULL, __VA_ARGS__); \
  }

#define LOOK_ON_FD(type, name, parameters, ...)                                               \
  type name parameters {                                                                      \
    NEXT(type, #name, parameters);                                                            \
    char buffer[4096];                                                                        \
    RUN(type, #name, reads_count() ? path_of(fd, buffer, sizeof buffer) : NULL, __VA_ARGS__); \
  }

LOOK_ON_PATH(stat, (const char* path, struct stat* status), path, path, status)
LOOK_ON_PATH(stat64, (const char* path, struct stat64* status), path, path, status)
LOOK_ON_PATH(lstat, (const char* path, struct stat* status), path, path, status)
LOOK_ON_PATH(lstat64, (const char* path, struct stat64* status), path, path, status)
LOOK_ON_FD(int, fstat, (int fd, struct stat* status), fd, status)
LOOK_ON_FD(int, fstat64, (int fd, struct stat64* status), fd, status)
int flock(int fd, int operation) {
  NEXT(int, "flock", (int, int));
  if (getenv("RINGTRAIN_FAULT_NO_LOCKS")) {
    errno = ENOLCK;
    return -1;
  }
  char buffer[4096];
  RUN(int, "flock", reads_count() ? path_of(fd, buffer, sizeof buffer) : NULL, fd, operation);
}
LOOK_ON_FD(ssize_t, read, (int fd, void* data, size_t bytes), fd, data, bytes)
LOOK_ON_FD(ssize_t, pread, (int fd, void* data, size_t bytes, off_t at), fd, data, bytes, at)
LOOK_ON_FD(ssize_t, pread64, (int fd, void* data, size_t bytes, off64_t at), fd, data, bytes, at)

#define LOOK_FOR_POINTER(type, name, parameters, path, ...)          \
  type* name parameters {                                            \
    NEXT(type*, #name, parameters);                                  \
    const long number = count(#name, reads_count() ? (path) : NULL); \
    if (number < 0) return NULL;                                     \
    type* const result = next(__VA_ARGS__);                          \
    const int error = errno;                                         \
    after(number);                                                   \
    errno = error;                                                   \
    return result;                                                   \
  }

static __thread char name_buffer[4096];

LOOK_FOR_POINTER(DIR, opendir, (const char* path), path, path)
LOOK_FOR_POINTER(DIR, fdopendir, (int fd), path_of(fd, name_buffer, sizeof name_buffer), fd)
LOOK_FOR_POINTER(struct dirent, readdir, (DIR * folder), path_of(dirfd(folder), name_buffer, sizeof name_buffer),
                 folder)
LOOK_FOR_POINTER(struct dirent64, readdir64, (DIR * folder), path_of(dirfd(folder), name_buffer, sizeof name_buffer),
                 folder)
LOOK_FOR_POINTER(FILE, fopen, (const char* path, const char* mode), path, path, mode)
LOOK_FOR_POINTER(FILE, fopen64, (const char* path, const char* mode), path, path, mode)
