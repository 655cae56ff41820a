// Where the time of a batch of samples went.
#ifndef MESHWRIGHT_RL_BATCH_TIMES_H_
#define MESHWRIGHT_RL_BATCH_TIMES_H_

#include <chrono>
#include <cstdint>

namespace mw::rl {

using Clock = std::chrono::steady_clock;

inline double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct BatchTimes {
  double sampling_s = 0;
  double rewards_s = 0;
  double log_probs_s = 0;
  double compile_s = 0;  // of the sampler, part of sampling_s
  int64_t sampled_tokens = 0;
};

}  // namespace mw::rl

#endif  // MESHWRIGHT_RL_BATCH_TIMES_H_
