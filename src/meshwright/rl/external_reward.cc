#include "meshwright/rl/external_reward.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "meshwright/base/excerpt.h"
#include "meshwright/base/status_macros.h"

extern char** environ;

namespace mw::rl {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

// How often a wait looks whether it is to stop.
constexpr int kSliceMs = 100;
// A line without an end is no answer.
constexpr size_t kLongestLine = 1 << 20;
constexpr double kLargestReward = 1e30;  // its square is a number

// Runs the command $1. Beside it, with no parent among its processes that could come to wait for
// it, a shell waits for a line on descriptor 9, whose other end this program alone has. Where it
// ends without one, by kill -9 say, that shell ends the process group: the command, what it has
// begun, and itself. PR_SET_PDEATHSIG would end only the command's own shell.
constexpr const char* kScript =
    "( (read -r line <&9 || kill -9 0) >/dev/null 2>&1 & ); exec 9<&-; exec /bin/sh -c \"$1\"";
constexpr int kScriptLifeFd = 9;  // the last that every sh can name

absl::Status Errno(const char* what) {
  return absl::InternalError(fmt::format("{} failed: {}", what, std::strerror(errno)));
}

// Keeps a write to a process that is gone from ending this one, on this thread alone.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    const timespec now = {0, 0};
    while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &now) == -1 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_ = {};
  sigset_t before_ = {};
  bool was_pending_ = false;
};

// A pipe whose ends are closed with it, and by exec.
struct Pipe {
  int read_end = -1;
  int write_end = -1;

  Pipe() = default;
  ~Pipe() {
    if (read_end >= 0) ::close(read_end);
    if (write_end >= 0) ::close(write_end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  absl::Status Open() {
    std::array<int, 2> ends = {-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Errno("making a pipe");
    read_end = ends[0];
    write_end = ends[1];
    return absl::OkStatus();
  }
};

}  // namespace

// The child, and our ends of its pipes.
class ExternalReward::Process {
 public:
  static absl::StatusOr<std::unique_ptr<Process>> Start(const std::string& command) {
    Pipe in;
    Pipe out;
    Pipe life;
    for (Pipe* const pipe : {&in, &out, &life}) MW_RETURN_IF_ERROR(pipe->Open());
    auto process = std::make_unique<Process>();
    process->in_ = std::exchange(in.write_end, -1);
    process->out_ = std::exchange(out.read_end, -1);
    process->life_ = std::exchange(life.write_end, -1);
    ::fcntl(process->in_, F_SETFL, O_NONBLOCK);
    ::fcntl(process->out_, F_SETFL, O_NONBLOCK);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in.read_end, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out.write_end, STDOUT_FILENO);
    // The last: it may be one of theirs, of which there are copies by then.
    posix_spawn_file_actions_adddup2(&actions, life.read_end, kScriptLifeFd);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    // What this program ignores is not for the child to ignore.
    sigset_t defaults;
    sigemptyset(&defaults);
    for (const int signal : {SIGPIPE, SIGINT, SIGTERM}) sigaddset(&defaults, signal);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    const char* const argv[] = {"/bin/sh", "-c", kScript, "sh", command.c_str(), nullptr};
    const int error = ::posix_spawn(&process->pid_, argv[0], &actions, &attributes,
                                    const_cast<char* const*>(argv), environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error != 0) {
      process->pid_ = -1;
      errno = error;
      return Errno("starting /bin/sh");
    }
    return process;
  }

  Process() = default;
  ~Process() {
    CloseInput();
    if (pid_ > 0 && !Wait(1.0)) Kill();
    if (out_ >= 0) ::close(out_);
    if (life_ < 0) return;
    // What a command that has ended leaves running on purpose goes on.
    const NoSigpipe no_sigpipe;
    [[maybe_unused]] const ssize_t written = ::write(life_, "\n", 1);
    ::close(life_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int in() const { return in_; }
  int out() const { return out_; }
  std::string& unread() { return unread_; }

  void CloseInput() {
    if (in_ >= 0) ::close(std::exchange(in_, -1));
  }
  // Ends it and what it has begun, at once.
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(-pid_, SIGKILL);
    Wait(5.0);
  }
  // How it ended; waits for that a moment, and ends it if it has not.
  std::string End() {
    CloseInput();
    if (!Wait(1.0)) {
      Kill();
      return "closed its output";
    }
    if (WIFSIGNALED(status_)) return fmt::format("was ended by signal {}", WTERMSIG(status_));
    return fmt::format("ended with status {}", WEXITSTATUS(status_));
  }

 private:
  // Whether it has ended within `seconds`.
  bool Wait(double seconds) {
    const auto until = Clock::now() + std::chrono::duration<double>(seconds);
    while (pid_ > 0) {
      const pid_t ended = ::waitpid(pid_, &status_, WNOHANG);
      if (ended == pid_ || (ended < 0 && errno != EINTR)) {
        pid_ = -1;
        return true;
      }
      if (Clock::now() >= until) return false;
      ::poll(nullptr, 0, 5);
    }
    return true;
  }

  pid_t pid_ = -1;
  int status_ = 0;
  int in_ = -1;
  int out_ = -1;
  int life_ = -1;  // see kScript
  std::string unread_;
};

// What is asked and what was answered so far.
struct ExternalReward::Batch {
  std::span<const RewardInput> inputs;
  int64_t first_id = 0;
  std::string request;
  std::vector<std::optional<double>> rewards;
  size_t num_answered = 0;

  // Of the first input without a reward.
  std::string Sample() const {
    size_t i = 0;
    while (i + 1 < rewards.size() && rewards[i]) ++i;
    return fmt::format("sample {} (row {}, completion '{}')", first_id + static_cast<int64_t>(i),
                       inputs[i].row_id, Excerpt(inputs[i].completion));
  }

  // Takes one line. Errors: InvalidArgument for what is no answer.
  absl::Status Take(const std::string& line) {
    const auto wrong = [&](const std::string& why) {
      return absl::InvalidArgumentError(fmt::format("wrote '{}', which {},", Excerpt(line), why));
    };
    const ordered_json answer = ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (answer.is_discarded()) return wrong("is no JSON object of finite numbers");
    if (!answer.is_object()) return wrong("is no JSON object");
    const auto id = answer.find("id");
    if (id == answer.end() || !id->is_number_integer()) return wrong("has no number as `id`");
    const int64_t i = id->get<int64_t>() - first_id;
    if (i < -first_id || i >= std::ssize(rewards)) {
      return wrong("has an `id` that was not asked for");
    }
    if (i < 0 || rewards[static_cast<size_t>(i)]) {
      return wrong("has an `id` that was answered already");
    }
    std::optional<double>& reward = rewards[static_cast<size_t>(i)];
    const auto value = answer.find("reward");
    if (value == answer.end() || !value->is_number() || !std::isfinite(value->get<double>())) {
      return wrong("has no finite number as `reward`");
    }
    if (std::abs(value->get<double>()) > kLargestReward) {
      return wrong("has a `reward` beyond 1e30, of which no advantage can be made");
    }
    reward = value->get<double>();
    ++num_answered;
    return absl::OkStatus();
  }
};

ExternalReward::ExternalReward(std::string command, const RewardContext& context)
    : command_(std::move(command)), timeout_s_(context.options.timeout_s), note_(context.note) {}

ExternalReward::~ExternalReward() = default;

absl::Status ExternalReward::Exchange(Batch& batch, const std::atomic<bool>* stop) {
  if (process_ == nullptr) {
    MW_ASSIGN_OR_RETURN(process_, Process::Start(command_));
  }
  batch.rewards.assign(batch.inputs.size(), std::nullopt);
  batch.num_answered = 0;
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s_);
  std::string_view unwritten = batch.request;
  std::string& unread = process_->unread();
  while (batch.num_answered < batch.inputs.size()) {
    if (stop != nullptr && stop->load()) {
      process_->Kill();
      return absl::CancelledError("rewarding was stopped");
    }
    if (Clock::now() >= deadline) {
      process_->Kill();
      return absl::UnavailableError(
          fmt::format("gave no reward within reward.timeout_s={} s", timeout_s_));
    }
    std::array<pollfd, 2> ends = {pollfd{process_->out(), POLLIN, 0},
                                  pollfd{unwritten.empty() ? -1 : process_->in(), POLLOUT, 0}};
    if (::poll(ends.data(), ends.size(), kSliceMs) < 0 && errno != EINTR) return Errno("poll");
    if ((ends[1].revents & (POLLOUT | POLLERR | POLLHUP)) != 0) {
      const NoSigpipe no_sigpipe;
      const ssize_t written = ::write(process_->in(), unwritten.data(), unwritten.size());
      if (written > 0) unwritten.remove_prefix(static_cast<size_t>(written));
      // It may have answered before it closed its input: what it wrote is read first.
      if (written < 0 && errno == EPIPE) unwritten = {};
    }
    if ((ends[0].revents & (POLLIN | POLLERR | POLLHUP)) == 0) continue;
    std::array<char, 1 << 16> bytes;
    const ssize_t count = ::read(process_->out(), bytes.data(), bytes.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0) return absl::UnavailableError(process_->End());
    unread.append(bytes.data(), static_cast<size_t>(count));
    for (size_t end; (end = unread.find('\n')) != std::string::npos;) {
      const std::string line = unread.substr(0, end);
      unread.erase(0, end + 1);
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      MW_RETURN_IF_ERROR(batch.Take(line));
    }
    if (unread.size() > kLongestLine) {
      return absl::InvalidArgumentError(
          fmt::format("wrote '{}', a line that does not end", Excerpt(unread)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> ExternalReward::Score(std::span<const RewardInput> inputs,
                                                          const std::atomic<bool>* stop) {
  Batch batch;
  batch.inputs = inputs;
  batch.first_id = std::exchange(next_id_, next_id_ + std::ssize(inputs));
  for (size_t i = 0; i < inputs.size(); ++i) {
    ordered_json line = {{"id", batch.first_id + static_cast<int64_t>(i)},
                         {"prompt", inputs[i].prompt},
                         {"completion", inputs[i].completion},
                         {"row_id", inputs[i].row_id}};
    for (const auto& field : inputs[i].row->items()) {
      if (!line.contains(field.key())) line[field.key()] = field.value();
    }
    batch.request += line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  }
  absl::Status status = Exchange(batch, stop);
  if (absl::IsUnavailable(status)) {
    process_.reset();
    if (note_) {
      note_(fmt::format("the reward command '{}' {} before it had rewarded {}; it is begun again",
                        Excerpt(command_), std::string(status.message()), batch.Sample()));
    }
    status = Exchange(batch, stop);
  }
  if (!status.ok()) {
    process_.reset();
    if (absl::IsCancelled(status)) return status;
    return absl::AbortedError(fmt::format("the reward command '{}' {} before it had rewarded {}",
                                          Excerpt(command_), std::string(status.message()),
                                          batch.Sample()));
  }
  std::vector<double> rewards;
  for (const std::optional<double>& reward : batch.rewards) rewards.push_back(*reward);
  return rewards;
}

}  // namespace mw::rl
