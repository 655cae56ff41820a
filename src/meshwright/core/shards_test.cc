#include "meshwright/core/shards.h"

#include <gtest/gtest.h>

#include <numeric>

namespace mw {
namespace {

Mesh MakeMesh(const std::string& text) { return *Mesh::Create(*Mesh::ParseAxes(text)); }

HostTensor Counting(const Dims& dims) {
  std::vector<float> values(static_cast<size_t>(NumElements(dims)));
  std::iota(values.begin(), values.end(), 1.0f);
  return HostTensor::From<float>(DType::kF32, dims, values);
}

TEST(ShardsTest, EveryLayoutComesBack) {
  const Mesh mesh = MakeMesh("data=2,fsdp=2,tensor=3");
  const std::vector<PartitionSpec> specs = {
      {},
      {{{"data"}, {}, {"tensor"}}, {}, {}},
      {{{}, {"tensor"}, {"data", "fsdp"}}, {}, {}},
      {{{"fsdp", "data"}, {}, {}}, {}, {}},
      {{{"fsdp"}, {}, {"tensor"}}, {"data"}, {}},
      {{{}, {}, {}}, {"data", "tensor"}, {}},
  };
  const HostTensor whole = Counting({4, 6, 12});
  for (const PartitionSpec& spec : specs) {
    const TensorType type(DType::kF32, whole.dims(), spec);
    std::vector<HostTensor> parts;
    for (const int64_t d : DevicesToRead(type, mesh)) {
      parts.push_back(ShardOf(whole, type, mesh, d));
      EXPECT_EQ(parts.back().dims(), LocalType(type, mesh).dims);
    }
    const HostTensor back = FromShards(parts, type, mesh);
    ASSERT_EQ(back.dims(), whole.dims()) << spec.ToString();
    for (int64_t i = 0; i < whole.num_elements(); ++i) {
      ASSERT_EQ(back.as<float>()[i], whole.as<float>()[i]) << spec.ToString() << " element " << i;
    }
  }
}

TEST(ShardsTest, PartsStartWhereTheMeshSays) {
  const Mesh mesh = MakeMesh("data=2,tensor=2");
  const TensorType type(DType::kF32, {4, 4}, {{{"tensor", "data"}, {}}, {}, {}});
  // Device 1 has data 0 and tensor 1, so it holds the third of four rows.
  EXPECT_EQ(ShardOf(Counting({4, 4}), type, mesh, 1).as<float>()[0], 9.0f);
  EXPECT_EQ(ShardOf(Counting({4, 4}), type, mesh, 2).as<float>()[0], 5.0f);
}

TEST(ShardsTest, PartialSumsAreAddedUp) {
  const Mesh mesh = MakeMesh("data=4");
  const TensorType type(DType::kF32, {2}, {{}, {"data"}, {}});
  std::vector<HostTensor> parts(4, Counting({2}));
  const HostTensor sum = FromShards(parts, type, mesh);
  EXPECT_EQ(sum.as<float>()[0], 4.0f);
  EXPECT_EQ(sum.as<float>()[1], 8.0f);
  EXPECT_EQ(parts[0].as<float>()[0], 1.0f) << "the parts must not be written";
}

}  // namespace
}  // namespace mw
