#include "meshwright/service/tensor_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

namespace mw::service {
namespace {

using ::testing::HasSubstr;

meshwright::v1::Tensor Message(const std::string& dtype, const std::vector<int64_t>& shape,
                               const std::string& data) {
  meshwright::v1::Tensor message;
  message.set_dtype(dtype);
  for (const int64_t dim : shape) message.add_shape(dim);
  message.set_data(data);
  return message;
}

TEST(TensorMessageTest, BytesAreLittleEndian) {
  const auto tensor =
      ToTensor("t", Message("s32", {2, 1}, std::string("\x01\x02\0\0\xff\xff\xff\xff", 8)));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->dims(), (Dims{2, 1}));
  EXPECT_EQ(tensor->as<int32_t>()[0], 0x201);
  EXPECT_EQ(tensor->as<int32_t>()[1], -1);
  meshwright::v1::Tensor back;
  ToMessage(*tensor, back);
  EXPECT_EQ(back.dtype(), "s32");
  EXPECT_EQ(back.data(), std::string("\x01\x02\0\0\xff\xff\xff\xff", 8));
  EXPECT_EQ(ToTensor("scalar", Message("bfloat16", {}, "ab"))->num_elements(), 1);
  EXPECT_EQ(ToTensor("empty", Message("f32", {0, 3}, ""))->num_elements(), 0);
}

TEST(TensorMessageTest, WhatDoesNotFitIsRefused) {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  const std::pair<meshwright::v1::Tensor, const char*> cases[] = {
      {Message("f99", {1}, "abcd"), "dtype \"f99\""},
      {Message("", {1}, "abcd"), "dtype \"\""},
      {Message("f32", {2}, "abcd"), "has 4 bytes"},
      {Message("f32", {1}, "abcdefgh"), "has 8 bytes"},
      {Message("f32", {-1}, ""), "shape [-1]"},
      {Message("f32", {huge, huge}, "abcd"), "has 4 bytes"},
      {Message("f32", {1, 1, 1, 1, 1, 1, 1, 1, 1}, "abcd"), "9 dims"}};
  for (const auto& [message, says] : cases) {
    const auto tensor = ToTensor("name", message);
    EXPECT_EQ(tensor.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(tensor.status().message()), HasSubstr(says));
    EXPECT_THAT(std::string(tensor.status().message()), HasSubstr("\"name\""));
  }
}

}  // namespace
}  // namespace mw::service
