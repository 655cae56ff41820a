// Two programs of four devices beside one another, for tests of passes that change how values
// travel.
#ifndef MESHWRIGHT_SPMD_SAME_RESULTS_FOR_TEST_H_
#define MESHWRIGHT_SPMD_SAME_RESULTS_FOR_TEST_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "meshwright/graph/graph.h"
#include "meshwright/graph_testing/evaluator.h"
#include "meshwright/ops/collective.h"
#include "meshwright/spmd/census.h"

namespace mw::spmd {

inline constexpr int kDevices = 4;
inline const ops::CollectiveGroups kAll = {{{0, 1, 2, 3}}, {"data"}};

// What `graph` gives on devices that each hold other inputs, whole numbers.
inline std::vector<DeviceTensors> Run(const graph::Graph& graph) {
  std::vector<DeviceTensors> inputs;
  int64_t next = 1;
  for (const graph::Value& parameter : graph.parameters()) {
    DeviceTensors& devices = inputs.emplace_back();
    for (int d = 0; d < kDevices; ++d) {
      ExactTensor tensor;
      for (int64_t i = 0; i < parameter.type().num_elements(); ++i) {
        tensor.floats.push_back(static_cast<double>(next = next * 7919 % 1009) - 500);
      }
      devices.push_back(std::make_shared<ExactTensor>(std::move(tensor)));
    }
  }
  absl::StatusOr<std::vector<DeviceTensors>> results = Evaluate(graph, inputs, kDevices);
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() ? *std::move(results) : std::vector<DeviceTensors>();
}

inline void ExpectSame(const graph::Graph& a, const graph::Graph& b) {
  const std::vector<DeviceTensors> x = Run(a), y = Run(b);
  ASSERT_EQ(x.size(), y.size());
  for (size_t r = 0; r < x.size(); ++r) {
    for (int d = 0; d < kDevices; ++d) EXPECT_EQ(*x[r][d], *y[r][d]) << r << " on device " << d;
  }
}

inline int64_t Count(const graph::Graph& graph, std::string_view kind, int64_t trips) {
  int64_t count = 0;
  for (const CensusRow& row : TakeCensus(graph)) {
    if (row.kind == kind && row.trips == trips) count += row.count;
  }
  return count;
}

}  // namespace mw::spmd

#endif  // MESHWRIGHT_SPMD_SAME_RESULTS_FOR_TEST_H_
