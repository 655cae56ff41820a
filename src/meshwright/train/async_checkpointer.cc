#include "meshwright/train/async_checkpointer.h"

#include <fmt/format.h>

#include <chrono>
#include <system_error>
#include <utility>

#include "meshwright/base/status_macros.h"

namespace mw::train {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

AsyncCheckpointer::AsyncCheckpointer(std::string run_dir, Options options)
    : run_dir_(std::move(run_dir)), options_(std::move(options)) {}

AsyncCheckpointer::~AsyncCheckpointer() { Wait().IgnoreError(); }

absl::Status AsyncCheckpointer::Save(
    const std::function<absl::StatusOr<CheckpointJob>()>& take_copies) {
  const Clock::time_point called = Clock::now();
  MW_RETURN_IF_ERROR(Poll());
  if (busy()) {
    const int64_t before = step_;
    MW_RETURN_IF_ERROR(Wait());
    if (options_.note && !std::exchange(wait_told_, true)) {
      options_.note(fmt::format(
          "a checkpoint was due while checkpoint {} was still being written, and waited {:.2f} s "
          "for it: with a longer checkpoint_period training would not wait",
          before, SecondsSince(called)));
    }
  }
  const Clock::time_point begun = Clock::now();
  MW_ASSIGN_OR_RETURN(CheckpointJob job, take_copies());
  step_ = job.state.engine.step;
  const auto write = [this, begun](CheckpointJob taken) {
    Written written;
    const absl::StatusOr<uint64_t> num_bytes = SaveCheckpoint(
        run_dir_, std::move(taken.state), std::move(taken.write_model), options_.checkpoint);
    written.status = num_bytes.status();
    written.num_bytes = num_bytes.ok() ? *num_bytes : 0;
    written.seconds = SecondsSince(begun);
    return written;
  };
  absl::Status status;
  if (options_.async) {
    try {
      writing_ = std::async(std::launch::async, write, std::move(job));
    } catch (const std::system_error& e) {
      status = absl::ResourceExhaustedError(
          fmt::format("cannot start a thread that writes checkpoint {}: {}; "
                      "async_checkpointing=false needs none",
                      step_, e.code().message()));
    }
  } else {
    status = Take(write(std::move(job)));
  }
  blocked_s_ = blocked_s_.value_or(0) + SecondsSince(called);
  return status;
}

absl::Status AsyncCheckpointer::Poll() {
  if (!busy() || writing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    return absl::OkStatus();
  }
  return Take(writing_.get());
}

absl::Status AsyncCheckpointer::Wait() { return busy() ? Take(writing_.get()) : absl::OkStatus(); }

absl::Status AsyncCheckpointer::Take(Written written) {
  if (written.status.ok()) {
    newest_ = fmt::format("{}/checkpoints/{}", run_dir_, step_);
    finished_.push_back(std::move(written));
    return absl::OkStatus();
  }
  const absl::StatusOr<std::optional<FoundCheckpoint>> whole = FindLatestCheckpoint(run_dir_);
  return absl::Status(
      written.status.code(),
      fmt::format(
          "saving checkpoint {} failed: {}; {}", step_, std::string(written.status.message()),
          whole.ok() && *whole ? fmt::format("--resume continues checkpoint {}", (*whole)->step)
                               : "the run has no checkpoint that is whole"));
}

void AsyncCheckpointer::AddMetrics(MetricRecord& record) {
  if (const auto blocked_s = std::exchange(blocked_s_, std::nullopt)) {
    record.Set("checkpoint/blocked_seconds", *blocked_s);
  }
  if (!finished_.empty()) {
    record.Set("checkpoint/save_seconds", finished_.front().seconds);
    record.Set("checkpoint/bytes", static_cast<double>(finished_.front().num_bytes));
    finished_.pop_front();
  }
}

}  // namespace mw::train
