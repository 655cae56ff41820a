#include "meshwright/io/safetensors.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "meshwright/io/test_util.h"

namespace mw::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A file with this header (not padded) and `data_bytes` zeros.
std::string FileOf(std::string_view header, size_t data_bytes) {
  std::string file;
  PutLittleEndian<uint64_t>(file, header.size());
  file += header;
  file.append(data_bytes, '\0');
  return file;
}

absl::Status OpenBytes(const std::string& content) {
  TempDir dir;
  Spill(dir.File("x.safetensors"), content);
  auto file = SafetensorsFile::Open(dir.File("x.safetensors"));
  if (file.ok()) TouchAll(**file);
  if (!file.ok()) {
    EXPECT_THAT(Message(file.status()), HasSubstr("x.safetensors")) << "does not name the file";
  }
  return file.status();
}

TEST(SafetensorsTest, ReadsTheReferenceFile) {
  ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(TestData("small.safetensors")));
  EXPECT_EQ(file->metadata(), (SafetensorsMetadata{{"format", "pt"}}));
  const auto expected = nlohmann::json::parse(Slurp(TestData("expected.json")))["safetensors"];
  ASSERT_EQ(file->names().size(), expected.size());
  for (size_t index = 0; index < expected.size(); ++index) {
    const std::string name = expected[index]["name"];
    ASSERT_OK_AND_ASSIGN(const TensorInfo info, file->info(name));
    EXPECT_EQ(info.stored_as, expected[index]["dtype"].get<std::string>()) << name;
    EXPECT_EQ(info.dims, expected[index]["shape"].get<Dims>()) << name;
    ASSERT_OK_AND_ASSIGN(const HostTensor tensor, file->Read(name));
    EXPECT_EQ(tensor.dims(), info.dims);
    EXPECT_EQ(tensor.dtype(), info.dtype);
    const std::string bytes = BytesOf(tensor);
    for (size_t i = 0; i < bytes.size(); ++i) {
      const int want = static_cast<int>((7 * i + 13 * index) % 251);
      const int mask = info.dtype == DType::kPred ? 1 : 255;
      ASSERT_EQ(static_cast<uint8_t>(bytes[i]), want & mask) << name << " byte " << i;
    }
  }
}

TEST(SafetensorsTest, ViewsAreZeroCopyAndKeepTheFile) {
  HostTensor tensor;
  const std::byte* first = nullptr;
  {
    ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(TestData("small.safetensors")));
    ASSERT_OK_AND_ASSIGN(tensor, file->Read("model.norm"));
    ASSERT_OK_AND_ASSIGN(const HostTensor again, file->Read("model.norm"));
    first = again.bytes();
  }
  EXPECT_EQ(tensor.bytes(), first);
  EXPECT_EQ(tensor.as<uint32_t>().size(), 7u);
  EXPECT_EQ(static_cast<uint8_t>(BytesOf(tensor)[0]), 13);
}

// Bytes in, the same bytes out: bf16 and every other type.
TEST(SafetensorsTest, RewritingGivesTheReferenceImplementationsBytes) {
  ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(TestData("small.safetensors")));
  std::map<std::string, HostTensor> tensors;
  for (const std::string& name : file->names()) {
    ASSERT_OK_AND_ASSIGN(tensors[name], file->Read(name));
  }
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(const FileDigest digest,
                       WriteSafetensors(dir.File("out"), tensors, file->metadata()));
  EXPECT_EQ(Slurp(dir.File("out")), Slurp(TestData("small.safetensors")));
  ASSERT_OK_AND_ASSIGN(const FileDigest reference, ChecksumFile(TestData("small.safetensors")));
  EXPECT_EQ(digest.xxh3_128, reference.xxh3_128);
}

TEST(SafetensorsTest, RewritingNumpysFileGivesItsBytes) {
  ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(TestData("rope.safetensors")));
  std::map<std::string, HostTensor> tensors;
  for (const std::string& name : file->names()) {
    ASSERT_OK_AND_ASSIGN(tensors[name], file->Read(name));
  }
  TempDir dir;
  ASSERT_OK(WriteSafetensors(dir.File("out"), tensors).status());
  EXPECT_EQ(Slurp(dir.File("out")), Slurp(TestData("rope.safetensors")));
}

TEST(SafetensorsTest, WriterKeepsTheGivenOrder) {
  TempDir dir;
  const HostTensor bytes = HostTensor::Zeros(DType::kU8, {3});
  const HostTensor floats = HostTensor::From<float>(DType::kF32, {2}, std::vector{1.5f, -2.0f});
  ASSERT_OK_AND_ASSIGN(
      const auto writer,
      SafetensorsWriter::Create(dir.File("f"), {{"z", DType::kU8, {3}}, {"a", DType::kF32, {2}}}));
  EXPECT_STATUS(writer->Write("a", floats), absl::StatusCode::kInvalidArgument,
                HasSubstr("the next in order is \"z\""));
  EXPECT_STATUS(writer->Write("z", floats), absl::StatusCode::kInvalidArgument,
                HasSubstr("got f32[2], declared as u8[3]"));
  ASSERT_OK(writer->Write("z", bytes));
  EXPECT_STATUS(writer->Finish().status(), absl::StatusCode::kFailedPrecondition,
                HasSubstr("tensor \"a\" is not written (1 of 2 are)"));
  ASSERT_OK(writer->Write("a", floats));
  EXPECT_FALSE(writer->Write("b", floats).ok());
  ASSERT_OK(writer->Finish().status());
  ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(dir.File("f")));
  // Byte 3 of the data: not aligned for f32, so it has to be a copy.
  ASSERT_OK_AND_ASSIGN(const HostTensor back, file->Read("a"));
  EXPECT_EQ(back.as<float>()[0], 1.5f);
  EXPECT_EQ(back.as<float>()[1], -2.0f);
}

TEST(SafetensorsTest, WriterRefusesBadSpecs) {
  TempDir dir;
  const auto create = [&](std::vector<TensorSpec> specs, SafetensorsMetadata metadata = {}) {
    return SafetensorsWriter::Create(dir.File("f"), std::move(specs), metadata).status();
  };
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_STATUS(create({{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}}), code,
                HasSubstr("two tensors \"a\""));
  EXPECT_STATUS(create({{"__metadata__", DType::kU8, {1}}}), code, HasSubstr("__metadata__"));
  EXPECT_STATUS(create({{"\xff\xfe", DType::kU8, {1}}}), code, HasSubstr("UTF-8"));
  EXPECT_STATUS(create({}, {{"k", "\xc0"}}), code, HasSubstr("UTF-8"));
  EXPECT_STATUS(create({{"a", DType::kU8, {-1}}}), code, HasSubstr("does not fit"));
  EXPECT_STATUS(create({{"a", DType::kF64, {int64_t{1} << 31, int64_t{1} << 30}}}), code,
                HasSubstr("does not fit"));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(SafetensorsTest, UnknownNameSaysTheNearest) {
  ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(TestData("small.safetensors")));
  EXPECT_STATUS(file->Read("model.nrom").status(), absl::StatusCode::kNotFound,
                AllOf(HasSubstr("small.safetensors"), HasSubstr("the nearest is \"model.norm\"")));
}

TEST(SafetensorsTest, ReadsAFileWithoutTensors) {
  EXPECT_OK(OpenBytes(FileOf("{}", 0)));
  EXPECT_OK(OpenBytes(FileOf("{}       ", 0)));
}

struct BadHeader {
  const char* header;
  size_t data_bytes;
  const char* reason;
};

TEST(SafetensorsTest, RefusesBadHeadersWithTheReason) {
  const BadHeader cases[] = {
      {"[]", 0, "expected a JSON object"},
      {"{", 0, "not valid JSON"},
      {"\xff{}", 0, "not valid JSON"},
      {R"({"a":1})", 0, "tensor \"a\": its entry is not an object"},
      {R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "\"dtype\" is not a string"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "\"shape\" is not an array"},
      {R"({"a":{"dtype":"U8","shape":[1]}})", 1, "\"data_offsets\" is not"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":0}})", 1, "unknown field \"x\""},
      {R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", 1,
       "dtype F8_E4M3 is not supported"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "holds -1"},
      {R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1, "holds 1.5"},
      {R"({"a":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,1]}})", 1,
       "not a size"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "not a range"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "F32[2] takes 8 bytes"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4,
       "overflows"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,2,0],"data_offsets":[0,0]}})", 0,
       "overflows"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", 4, "the file has 4"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3, "begins at byte 1"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
           "b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
       6, "tensor \"b\": begins at byte 2 of the data, 4 overlapping"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
           "b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       4, "overlapping"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2, "end at byte 1"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
           "a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1, "\"a\" is there twice"},
      {R"({"__metadata__":{"k":1}})", 0, "\"k\" is not a string"},
      {R"({"__metadata__":[]})", 0, "__metadata__ is not an object"},
  };
  for (const BadHeader& bad : cases) {
    const absl::Status status = OpenBytes(FileOf(bad.header, bad.data_bytes));
    EXPECT_FALSE(status.ok()) << bad.header;
    EXPECT_THAT(Message(status), HasSubstr(bad.reason)) << bad.header;
  }
  EXPECT_STATUS(OpenBytes(FileOf(std::string(100000, '['), 0)), absl::StatusCode::kDataLoss,
                HasSubstr("not valid JSON"));
}

TEST(SafetensorsTest, RefusesHugeHeaderLengths) {
  for (const uint64_t length :
       {uint64_t{3}, uint64_t{100'000'001}, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string file;
    PutLittleEndian<uint64_t>(file, length);
    file += "{}";
    EXPECT_STATUS(OpenBytes(file), absl::StatusCode::kDataLoss, HasSubstr("header length"));
  }
}

// Offsets above 4 GiB, in a sparse file.
TEST(SafetensorsTest, ReadsBeyondFourGibibytes) {
  TempDir dir;
  constexpr uint64_t kBig = (uint64_t{1} << 32) + 16;
  std::string head =
      FileOf(fmt::format(R"({{"a":{{"dtype":"U8","shape":[{}],"data_offsets":[0,{}]}},)"
                         R"("b":{{"dtype":"F32","shape":[2],"data_offsets":[{},{}]}}}})",
                         kBig, kBig, kBig, kBig + 8),
             0);
  const std::string path = dir.File("big");
  Spill(path, head);
  std::filesystem::resize_file(path, head.size() + kBig);
  {
    std::ofstream out(path, std::ios::binary | std::ios::app);
    const float values[2] = {3.25f, -1.0f};
    out.write(reinterpret_cast<const char*>(values), sizeof(values));
  }
  ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(path));
  ASSERT_OK_AND_ASSIGN(const HostTensor b, file->Read("b"));
  EXPECT_EQ(b.as<float>()[0], 3.25f);
  EXPECT_EQ(b.as<float>()[1], -1.0f);
  ASSERT_OK_AND_ASSIGN(const HostTensor a, file->Read("a"));
  EXPECT_EQ(a.num_bytes(), kBig);
  EXPECT_EQ(std::to_integer<int>(a.bytes()[kBig - 1]), 0);
  EXPECT_EQ(file->data_bytes(), kBig + 8);
}

}  // namespace
}  // namespace mw::io
