// How far tensors are from values that an oracle stored.
#ifndef MESHWRIGHT_TRAIN_STORED_ERROR_FOR_TEST_H_
#define MESHWRIGHT_TRAIN_STORED_ERROR_FOR_TEST_H_

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "meshwright/core/host_tensor.h"
#include "meshwright/train/hf_tensors.h"

namespace mw::train {

// The 2-norm of the difference to the stored elements relative to that of the stored ones, less
// those of `start` where that is given. Of larger tensors every `thinned`th element is stored.
inline double StoredError(const HostTensor& actual, const HostTensor& stored,
                          const HostTensor* start = nullptr, int64_t thinned = 7) {
  const int64_t stride = stored.num_elements() == actual.num_elements() ? 1 : thinned;
  EXPECT_EQ(stored.num_elements(), (actual.num_elements() + stride - 1) / stride);
  double difference = 0;
  double size = 0;
  for (int64_t j = 0; j < stored.num_elements(); ++j) {
    const auto at = static_cast<size_t>(j * stride);
    const double expected = stored.as<float>()[static_cast<size_t>(j)];
    difference += std::pow(actual.as<float>()[at] - expected, 2);
    size += std::pow(expected - (start == nullptr ? 0 : start->as<float>()[at]), 2);
  }
  EXPECT_GT(size, 0);
  return std::sqrt(difference / size);
}

// The largest of the errors of `actual`, one tensor for each of `specs`, by Hugging Face tensor;
// `stored` gives the value of a name.
inline double WorstStoredError(const std::vector<nn::ParamSpec>& specs,
                               const std::vector<HostTensor>& actual,
                               const std::function<HostTensor(const std::string&)>& stored,
                               const std::vector<HostTensor>* start = nullptr,
                               int64_t thinned = 7) {
  const auto named = UnstackHfTensors(specs, actual);
  EXPECT_FALSE(named.empty());
  const auto before =
      start == nullptr ? std::map<std::string, HostTensor>() : UnstackHfTensors(specs, *start);
  double worst = 0;
  for (const auto& [name, tensor] : named) {
    const double error =
        StoredError(tensor, stored(name), start == nullptr ? nullptr : &before.at(name), thinned);
    worst = error <= worst ? worst : error;
  }
  return worst;
}

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_STORED_ERROR_FOR_TEST_H_
