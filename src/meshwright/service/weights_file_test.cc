#include "meshwright/service/weights_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "meshwright/io/safetensors.h"
#include "meshwright/train/model_files_for_test.h"

namespace mw::service {
namespace {

HostTensor Counting(DType dtype, const Dims& dims) {
  HostTensor tensor = HostTensor::Zeros(DType::kF32, dims);
  float next = 0.25f;
  for (float& x : tensor.mutable_as<float>()) x = next += 1;
  return tensor.ConvertTo(dtype);
}

std::map<std::string, HostTensor> Weights() {
  return {{"b", Counting(DType::kF32, {3, 5})},
          {"a", Counting(DType::kBF16, {7})},
          {"empty", HostTensor::Zeros(DType::kF32, {0, 4})},
          {"c", Counting(DType::kF32, {2})}};
}

TEST(WeightsFileTest, IsTheFileThatWouldBeWritten) {
  const train::TestDir dir;
  const auto file = *WeightsFile::Create(Weights(), std::nullopt, 41);
  ASSERT_TRUE(io::WriteSafetensors(dir.File("written"), Weights(),
                                   {{"format", "pt"}, {"policy_version", "41"}})
                  .ok());
  EXPECT_EQ(file->Read(0, file->num_bytes()), train::ReadText(dir.File("written")));
  EXPECT_EQ(file->policy_version(), 41);
  const auto opened = io::SafetensorsFile::Open(dir.File("written"));
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->metadata().at("policy_version"), "41");
}

TEST(WeightsFileTest, ChunksOfAnySizeAreItsBytes) {
  const auto file = *WeightsFile::Create(Weights(), std::nullopt, 1);
  const std::string whole = file->Read(0, file->num_bytes());
  ASSERT_EQ(static_cast<int64_t>(whole.size()), file->num_bytes());
  for (const int64_t size : {1, 3, 8, 61, 4096}) {
    std::string joined;
    for (int64_t offset = 0; offset < file->num_bytes(); offset += size) {
      const std::string chunk = file->Read(offset, size);
      EXPECT_LE(static_cast<int64_t>(chunk.size()), size);
      joined += chunk;
    }
    EXPECT_EQ(joined, whole) << size;
  }
  EXPECT_EQ(file->Read(file->num_bytes(), 10), "");
}

TEST(WeightsFileTest, FloatsAreConverted) {
  const train::TestDir dir;
  const auto file = *WeightsFile::Create(Weights(), DType::kBF16, 1);
  train::WriteText(dir.File("bf16"), file->Read(0, file->num_bytes()));
  const auto opened = io::SafetensorsFile::Open(dir.File("bf16"));
  ASSERT_TRUE(opened.ok()) << opened.status();
  for (const std::string& name : (*opened)->names()) {
    EXPECT_EQ((*opened)->info(name)->dtype, DType::kBF16) << name;
  }
  const HostTensor b = *(*opened)->Read("b");
  const HostTensor expected = Counting(DType::kBF16, {3, 5});
  EXPECT_EQ(std::memcmp(b.bytes(), expected.bytes(), b.num_bytes()), 0);
}

}  // namespace
}  // namespace mw::service
