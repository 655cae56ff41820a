#include "meshwright/core/mesh.h"

#include <gtest/gtest.h>

namespace mw {
namespace {

Mesh MakeMesh(const std::string& text, int64_t num_devices = 0) {
  auto axes = Mesh::ParseAxes(text);
  EXPECT_TRUE(axes.ok()) << axes.status();
  auto mesh = Mesh::Create(*axes, num_devices);
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  return *mesh;
}

std::string Refusal(const std::string& text, int64_t num_devices = 0) {
  const auto axes = Mesh::ParseAxes(text);
  if (!axes.ok()) return std::string(axes.status().message());
  const auto mesh = Mesh::Create(*axes, num_devices);
  return mesh.ok() ? "accepted" : std::string(mesh.status().message());
}

TEST(MeshTest, PlacesDevicesRowMajor) {
  const Mesh mesh = MakeMesh("data=2,tensor=3");
  EXPECT_EQ(mesh.num_devices(), 6);
  EXPECT_EQ(mesh.Coordinates(4), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(mesh.Position(4, {"tensor", "data"}), 3);
  EXPECT_EQ(mesh.Groups({"tensor"}), (std::vector<std::vector<int64_t>>{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(mesh.Groups({"data"}), (std::vector<std::vector<int64_t>>{{0, 3}, {1, 4}, {2, 5}}));
  EXPECT_EQ(mesh.Groups({"tensor", "data"}),
            (std::vector<std::vector<int64_t>>{{0, 3, 1, 4, 2, 5}}));
}

TEST(MeshTest, HostsHoldConsecutiveDevices) {
  const auto spread = [](const std::string& text, const std::string& between) {
    return Mesh::Create(*Mesh::ParseAxes(text), 0, *Mesh::ParseAxes(between));
  };
  // Two hosts of four: data has a part on either level, tensor stays within.
  const Mesh mesh = *spread("data=4,tensor=2", "data=2");
  EXPECT_EQ(mesh.num_hosts(), 2);
  EXPECT_EQ(mesh.ToString(), "data=4,tensor=2 (data=2 between hosts)");
  EXPECT_EQ(mesh.Groups({"tensor"}),
            (std::vector<std::vector<int64_t>>{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(mesh.Groups({"data"}), (std::vector<std::vector<int64_t>>{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_TRUE(mesh.WithinHosts({"tensor"}));
  EXPECT_FALSE(mesh.WithinHosts({"tensor", "data"}));

  // The second axis goes between hosts: its neighbours are four devices apart.
  const Mesh second = *spread("data=2,fsdp=4", "fsdp=2");
  EXPECT_EQ(second.Coordinates(5), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(second.Groups({"data"}),
            (std::vector<std::vector<int64_t>>{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(second.Groups({"fsdp"}),
            (std::vector<std::vector<int64_t>>{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  for (const auto& group : second.Groups({"data"})) {
    EXPECT_EQ(group[0] / 4, group[1] / 4);  // within a host
  }
  EXPECT_EQ(MakeMesh("data=2").num_hosts(), 1);
  EXPECT_TRUE(MakeMesh("data=2").WithinHosts({"data"}));

  const auto refusal = [&](const char* between) {
    const auto made = spread("data=4,tensor=2", between);
    return made.ok() ? "accepted" : std::string(made.status().message());
  };
  EXPECT_EQ(refusal("fsdp=2"),
            "dcn_mesh fsdp=2 spreads axis \"fsdp\" over hosts, which mesh data=4,tensor=2 does not "
            "have");
  EXPECT_EQ(
      refusal("data=3"),
      "dcn_mesh data=3 spreads axis data over 3 hosts, but its size in mesh data=4,tensor=2 is "
      "4; use a positive size that divides it");
  EXPECT_EQ(refusal("data=2,data=2"), "dcn_mesh data=2,data=2 names axis data twice");
}

TEST(MeshTest, OpenSizeTakesTheRest) {
  EXPECT_EQ(MakeMesh("data=2,fsdp=-1", 8).ToString(), "data=2,fsdp=4");
}

TEST(MeshTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(Refusal("data=2,tensor=3", 8),
            "mesh data=2,tensor=3 has 6 devices but there are 8; choose sizes whose product is 8");
  EXPECT_EQ(Refusal("data=3,fsdp=-1", 8),
            "mesh data=3,fsdp=-1 does not fit 8 devices: the other axes take 3, which does not "
            "divide them");
  EXPECT_EQ(Refusal("data=-1,fsdp=-1", 8),
            "mesh data=-1,fsdp=-1 leaves two sizes open; only one may be -1");
  EXPECT_EQ(Refusal("data=2,data=2"), "mesh data=2,data=2 names axis data twice");
  EXPECT_EQ(Refusal("batch=2"),
            "mesh axis \"batch\" is unknown; axes are data, stage, fsdp, fsdp_transpose, context, "
            "tensor, expert");
  EXPECT_EQ(Refusal("data=0"),
            "mesh axis data has size 0; it must be positive, or -1 for what is left");
  EXPECT_EQ(Refusal("data=x"), "mesh part \"data=x\" is not AXIS=SIZE, as in data=2,tensor=4");
  EXPECT_EQ(Refusal("data"), "mesh part \"data\" is not AXIS=SIZE, as in data=2,tensor=4");
  for (const char* text : {"data=2,", ",", ",data=2", "data=2,,fsdp=2"}) {
    EXPECT_EQ(Refusal(text), std::string("mesh \"") + text +
                                 "\" has a comma without an axis beside it; write it as "
                                 "data=2,tensor=4");
  }
}

TEST(MeshTest, LocalTypesAndStarts) {
  const Mesh mesh = MakeMesh("data=2,fsdp=2,tensor=2");
  TensorType type(DType::kF32, {8, 6});
  type.spec.dims = {{"fsdp", "data"}, {"tensor"}};
  EXPECT_EQ(LocalType(type, mesh).dims, (Dims{2, 3}));
  EXPECT_EQ(ShardStart(type, mesh, 5), (Dims{2, 3}));  // data 1, fsdp 0, tensor 1
  EXPECT_EQ(ShardStart(type, mesh, 2), (Dims{4, 0}));  // data 0, fsdp 1, tensor 0
}

TEST(MeshTest, ChecksSpecs) {
  const Mesh mesh = MakeMesh("data=2,tensor=4");
  TensorType type(DType::kF32, {8, 6});
  type.spec.dims = {{"data"}, {"tensor"}};
  EXPECT_EQ(CheckSpec("w", type, mesh).message(),
            "w: f32[8,6]{[data],[tensor]} cannot be split: dim 1 of size 6 is not a multiple of 4 "
            "(tensor)");
  type.spec.dims = {{"data"}, {"data"}};
  EXPECT_EQ(CheckSpec("w", type, mesh).message(),
            "w: f32[8,6]{[data],[data]} names axis data twice");
  type.spec.dims = {{"fsdp"}};
  EXPECT_EQ(CheckSpec("w", type, mesh).message(),
            "w: f32[8,6]{[fsdp]} names axis fsdp, which mesh data=2,tensor=4 does not have");
  type.spec.dims = {{"data"}};
  EXPECT_TRUE(CheckSpec("w", type, mesh).ok());
}

TEST(MeshTest, CanonicalDropsAxesOfOneDevice) {
  const Mesh mesh = MakeMesh("data=1,tensor=4");
  PartitionSpec spec;
  spec.dims = {{"data"}, {"data", "tensor"}, {}};
  spec.unreduced = {"data"};
  EXPECT_EQ(Canonical(spec, mesh).ToString(), "{[],[tensor]}");
}

}  // namespace
}  // namespace mw
