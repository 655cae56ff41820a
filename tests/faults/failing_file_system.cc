// A library to LD_PRELOAD into a program under test: calls that change files fail on purpose.
//
// Settings come from the environment:
//   MW_FAULT_UNDER     only paths below this folder are concerned (absolute; required)
//   MW_FAULT_CALLS     which of write fsync rename open mkdir symlink, with commas; all without it
//   MW_FAULT_NTH       the first of them to fail, counted from 1; 0 = none
//   MW_FAULT_STAYS     1: all after it fail too, as on a full disk
//   MW_FAULT_ERRNO     the number with which they fail; 0 = they succeed, after the delay
//   MW_FAULT_SHORT     1: a write that fails first writes half of its bytes, and succeeds with
//                      those; the next one fails
//   MW_FAULT_DELAY_MS  how long a call that would fail takes
//   MW_FAULT_LOG       a file that gets a line for each call concerned: "3 write PATH", and
//                      " FAILED" behind it for those that failed
//
// C streams reach the kernel past the names that a library can take, so their fopen and fflush
// stand for the open and the write. `open` means one that may create a file.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio_ext.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <string_view>

namespace {

struct Settings {
  std::string under;
  std::string calls;
  long nth = 0;
  bool stays = false;
  int error = 0;
  bool is_short = false;
  long delay_ms = 0;
  std::string log;
};

const char* Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

const Settings& GetSettings() {
  static const Settings* const settings = [] {
    auto* const s = new Settings;
    s->under = Variable("MW_FAULT_UNDER");
    s->calls = Variable("MW_FAULT_CALLS");
    s->nth = std::atol(Variable("MW_FAULT_NTH"));
    s->stays = std::string_view(Variable("MW_FAULT_STAYS")) == "1";
    s->error = std::atoi(Variable("MW_FAULT_ERRNO"));
    s->is_short = std::string_view(Variable("MW_FAULT_SHORT")) == "1";
    s->delay_ms = std::atol(Variable("MW_FAULT_DELAY_MS"));
    s->log = Variable("MW_FAULT_LOG");
    return s;
  }();
  return *settings;
}

template <typename Function>
Function Real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

bool IsConcerned(std::string_view call, std::string_view path) {
  const Settings& s = GetSettings();
  if (s.under.empty() || !path.starts_with(s.under)) return false;
  if (path.size() > s.under.size() && path[s.under.size()] != '/') return false;
  if (s.calls.empty()) return true;
  return ("," + s.calls + ",").find("," + std::string(call) + ",") != std::string::npos;
}

std::string PathOf(int fd) {
  char link[64];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  char path[4096];
  const ssize_t size = readlink(link, path, sizeof(path));
  return size <= 0 ? std::string() : std::string(path, static_cast<size_t>(size));
}

enum class Verdict { kPass, kFail, kHalf };

// Counts the call. With kFail errno is set.
Verdict Judge(std::string_view call, const std::string& path) {
  static std::mutex mutex;
  static long count = 0;
  static bool halved = false;
  if (!IsConcerned(call, path)) return Verdict::kPass;
  const Settings& s = GetSettings();
  bool hit = false;
  Verdict verdict = Verdict::kPass;
  {
    const std::lock_guard lock(mutex);
    ++count;
    // After half a write the failure is still to come.
    hit = s.nth > 0 && (count == s.nth || ((s.stays || halved) && count > s.nth));
    if (hit && s.error != 0) {
      verdict = s.is_short && call == "write" && !halved ? Verdict::kHalf : Verdict::kFail;
      halved = verdict == Verdict::kHalf;
    }
    if (!s.log.empty()) {
      const std::string line = std::to_string(count) + " " + std::string(call) + " " + path +
                               (verdict == Verdict::kFail ? " FAILED\n" : "\n");
      const int fd = Real<int (*)(const char*, int, ...)>("open")(
          s.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
      if (fd >= 0) {
        (void)!Real<ssize_t (*)(int, const void*, size_t)>("write")(fd, line.data(), line.size());
        close(fd);
      }
    }
  }
  if (hit && s.delay_ms > 0) {
    const timespec delay = {s.delay_ms / 1000, s.delay_ms % 1000 * 1000000};
    nanosleep(&delay, nullptr);
  }
  if (verdict == Verdict::kFail) errno = s.error;
  return verdict;
}

bool Fails(std::string_view call, const std::string& path) {
  return Judge(call, path) == Verdict::kFail;
}

bool MayCreate(const char* mode) { return std::strpbrk(mode, "wa") != nullptr; }

}  // namespace

extern "C" {

ssize_t write(int fd, const void* bytes, size_t size) {
  const auto real = Real<ssize_t (*)(int, const void*, size_t)>("write");
  switch (Judge("write", PathOf(fd))) {
    case Verdict::kFail:
      return -1;
    case Verdict::kHalf:
      return real(fd, bytes, (size + 1) / 2);
    case Verdict::kPass:
      break;
  }
  return real(fd, bytes, size);
}

int fflush(FILE* stream) {
  const auto real = Real<int (*)(FILE*)>("fflush");
  const size_t pending = stream == nullptr ? 0 : __fpending(stream);
  if (pending == 0) return real(stream);
  const int fd = fileno(stream);
  const Verdict verdict = Judge("write", PathOf(fd));
  if (verdict == Verdict::kPass) return real(stream);
  if (verdict == Verdict::kHalf) {
    // The second half is written by the same call, and there is no room for it.
    (void)!Real<ssize_t (*)(int, const void*, size_t)>("write")(fd, stream->_IO_write_base,
                                                                (pending + 1) / 2);
    errno = GetSettings().error;
  }
  const int error = errno;
  __fpurge(stream);
  errno = error;
  return EOF;
}

int fsync(int fd) { return Fails("fsync", PathOf(fd)) ? -1 : Real<int (*)(int)>("fsync")(fd); }

int rename(const char* from, const char* to) {
  return Fails("rename", to) ? -1 : Real<int (*)(const char*, const char*)>("rename")(from, to);
}

int renameat2(int from_fd, const char* from, int to_fd, const char* to, unsigned flags) {
  return Fails("rename", to) ? -1
                             : Real<int (*)(int, const char*, int, const char*, unsigned)>(
                                   "renameat2")(from_fd, from, to_fd, to, flags);
}

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  if ((flags & O_CREAT) != 0 && Fails("open", path)) return -1;
  return Real<int (*)(const char*, int, ...)>("open")(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  if ((flags & O_CREAT) != 0 && Fails("open", path)) return -1;
  return Real<int (*)(const char*, int, ...)>("open64")(path, flags, mode);
}

FILE* fopen(const char* path, const char* mode) {
  if (MayCreate(mode) && Fails("open", path)) return nullptr;
  return Real<FILE* (*)(const char*, const char*)>("fopen")(path, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  if (MayCreate(mode) && Fails("open", path)) return nullptr;
  return Real<FILE* (*)(const char*, const char*)>("fopen64")(path, mode);
}

int mkdir(const char* path, mode_t mode) {
  return Fails("mkdir", path) ? -1 : Real<int (*)(const char*, mode_t)>("mkdir")(path, mode);
}

int symlink(const char* target, const char* link) {
  return Fails("symlink", link) ? -1
                                : Real<int (*)(const char*, const char*)>("symlink")(target, link);
}

}  // extern "C"
