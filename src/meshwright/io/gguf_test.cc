#include "meshwright/io/gguf.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "meshwright/io/test_util.h"

namespace mw::io {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void PutString(std::string& out, std::string_view text) {
  PutLittleEndian<uint64_t>(out, text.size());
  out += text;
}

// Magic, version and counts.
std::string Head(uint64_t num_tensors, uint64_t num_keys, uint32_t version = 3) {
  std::string out = "GGUF";
  PutLittleEndian<uint32_t>(out, version);
  PutLittleEndian<uint64_t>(out, num_tensors);
  PutLittleEndian<uint64_t>(out, num_keys);
  return out;
}

void PutTensor(std::string& out, std::string_view name, const std::vector<uint64_t>& file_dims,
               uint32_t type, uint64_t offset) {
  PutString(out, name);
  PutLittleEndian<uint32_t>(out, static_cast<uint32_t>(file_dims.size()));
  for (const uint64_t dim : file_dims) PutLittleEndian<uint64_t>(out, dim);
  PutLittleEndian<uint32_t>(out, type);
  PutLittleEndian<uint64_t>(out, offset);
}

void Pad(std::string& out, size_t alignment = 32) {
  out.append((alignment - out.size() % alignment) % alignment, '\0');
}

absl::Status OpenBytes(const std::string& content) {
  TempDir dir;
  Spill(dir.File("x.gguf"), content);
  auto file = GgufFile::Open(dir.File("x.gguf"));
  if (file.ok()) {
    TouchAll(**file);
  } else {
    EXPECT_THAT(Message(file.status()), HasSubstr("x.gguf")) << "does not name the file";
  }
  return file.status();
}

TEST(GgufTest, ReadsEveryValueType) {
  ASSERT_OK_AND_ASSIGN(const auto file, GgufFile::Open(TestData("small.gguf")));
  const GgufMetadata& m = file->metadata();
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(*m.GetString("general.architecture"), "llama");
  EXPECT_EQ(*m.GetInt("test.u8"), 200);
  EXPECT_EQ(*m.GetInt("test.i8"), -100);
  EXPECT_EQ(*m.GetInt("test.u16"), 60000);
  EXPECT_EQ(*m.GetInt("test.i16"), -30000);
  EXPECT_EQ(*m.GetInt("test.u32"), 4000000000);
  EXPECT_EQ(*m.GetInt("test.i32"), -2000000000);
  EXPECT_EQ(*m.GetFloat("test.f32"), 0.1f);
  EXPECT_EQ(*m.GetBool("test.bool"), true);
  EXPECT_EQ(*m.GetString("test.string"), "h\u00e9llo \U0001f30d");
  EXPECT_EQ(std::get<uint64_t>(m.Find("test.u64")->data), (uint64_t{1} << 63) + 5);
  EXPECT_EQ(*m.GetInt("test.i64"), -(int64_t{1} << 62));
  EXPECT_EQ(*m.GetFloat("test.f64"), 0.1);
  EXPECT_THAT(*m.GetStrings("test.strings"), ElementsAre("a", "", "\u4e16"));
  EXPECT_THAT(*m.GetInts("test.ints"), ElementsAre(1, -2, 3));
  EXPECT_THAT(*m.GetFloats("test.floats"), ElementsAre(0.5, -1.25));
  const GgufValue* bools = m.Find("test.bools");
  EXPECT_EQ(std::get<std::vector<bool>>(bools->data), (std::vector<bool>{true, false, true}));
  const auto& nested = std::get<std::vector<GgufValue>>(m.Find("test.nested")->data);
  ASSERT_EQ(nested.size(), 3u);
  EXPECT_THAT(std::get<std::vector<int64_t>>(nested[2].data), ElementsAre(4, 5, 6));
}

TEST(GgufTest, GettersSayWhatIsWrong) {
  ASSERT_OK_AND_ASSIGN(const auto file, GgufFile::Open(TestData("small.gguf")));
  const GgufMetadata& m = file->metadata();
  EXPECT_STATUS(m.GetInt("test.u33").status(), absl::StatusCode::kNotFound,
                AllOf(HasSubstr("small.gguf"), HasSubstr("\"test.u33\"")));
  EXPECT_STATUS(m.GetInt("test.string").status(), absl::StatusCode::kInvalidArgument,
                HasSubstr("\"test.string\" is string, expected an integer"));
  EXPECT_STATUS(m.GetInt("test.u64").status(), absl::StatusCode::kInvalidArgument,
                HasSubstr("below 2^63"));
  EXPECT_STATUS(m.GetString("test.ints").status(), absl::StatusCode::kInvalidArgument,
                HasSubstr("is an array of i32, expected a string"));
  EXPECT_FALSE(m.GetBool("test.u8").ok());
  EXPECT_FALSE(m.GetFloat("test.string").ok());
  EXPECT_FALSE(m.GetStrings("test.ints").ok());
  EXPECT_FALSE(m.GetInts("test.floats").ok());
  EXPECT_FALSE(m.GetFloats("test.strings").ok());
}

TEST(GgufTest, ReadsPlainTensorsWithHuggingFaceDims) {
  ASSERT_OK_AND_ASSIGN(const auto file, GgufFile::Open(TestData("small.gguf")));
  EXPECT_THAT(file->file_order(), ElementsAre("f32", "f16", "bf16", "i32"));
  EXPECT_THAT(file->names(), ElementsAre("bf16", "f16", "f32", "i32"));
  ASSERT_OK_AND_ASSIGN(const TensorInfo f16, file->info("f16"));
  EXPECT_EQ(f16.dims, (Dims{2, 3, 4}));
  EXPECT_EQ(f16.dtype, DType::kF16);
  ASSERT_OK_AND_ASSIGN(const TensorInfo bf16, file->info("bf16"));
  EXPECT_EQ(bf16.dims, (Dims{4, 6}));
  EXPECT_EQ(bf16.stored_as, "BF16");
  ASSERT_OK_AND_ASSIGN(const HostTensor i32, file->Read("i32"));
  EXPECT_THAT(i32.as<int32_t>(), ElementsAre(-2, -1, 0, 1, 2));
  EXPECT_FALSE(file->Read("f33").ok());
}

TEST(GgufTest, RewritingGivesTheReferenceImplementationsBytes) {
  for (const char* name : {"small.gguf", "aligned64.gguf"}) {
    ASSERT_OK_AND_ASSIGN(const auto file, GgufFile::Open(TestData(name)));
    std::vector<TensorSpec> specs;
    for (const std::string& tensor : file->file_order()) {
      ASSERT_OK_AND_ASSIGN(const TensorInfo info, file->info(tensor));
      specs.push_back({tensor, info.dtype, info.dims});
    }
    TempDir dir;
    ASSERT_OK_AND_ASSIGN(const auto writer,
                         GgufWriter::Create(dir.File("out"), file->metadata(), specs));
    for (const std::string& tensor : file->file_order()) {
      ASSERT_OK_AND_ASSIGN(const HostTensor value, file->Read(tensor));
      ASSERT_OK(writer->Write(tensor, value));
    }
    ASSERT_OK(writer->Finish().status());
    EXPECT_EQ(Slurp(dir.File("out")), Slurp(TestData(name))) << name;
  }
}

TEST(GgufTest, WriterRoundTripsScalarsAndEmptyTensors) {
  TempDir dir;
  GgufMetadata metadata;
  metadata.Set("a", GgufValue::U32(7));
  metadata.Set("b", GgufValue::Strings({"x", "y"}));
  metadata.Set("a", GgufValue::String("replaced"));
  metadata.Set("none", GgufValue::Strings({}));
  ASSERT_OK_AND_ASSIGN(const auto writer, GgufWriter::Create(dir.File("f"), metadata,
                                                             {{"scalar", DType::kF64, {}},
                                                              {"empty", DType::kBF16, {0, 3}},
                                                              {"s8", DType::kS8, {3}}}));
  ASSERT_OK(writer->Write("scalar", HostTensor::From<double>(DType::kF64, {}, std::vector{2.5})));
  ASSERT_OK(writer->Write("empty", HostTensor::Empty(DType::kBF16, {0, 3})));
  EXPECT_STATUS(writer->Finish().status(), absl::StatusCode::kFailedPrecondition,
                HasSubstr("\"s8\" is not written"));
  ASSERT_OK(
      writer->Write("s8", HostTensor::From<int8_t>(DType::kS8, {3}, std::vector<int8_t>{1, 2, 3})));
  ASSERT_OK(writer->Finish().status());
  ASSERT_OK_AND_ASSIGN(const auto file, GgufFile::Open(dir.File("f")));
  EXPECT_EQ(file->metadata().entries(), metadata.entries());
  ASSERT_OK_AND_ASSIGN(const HostTensor scalar, file->Read("scalar"));
  EXPECT_EQ(scalar.dims(), Dims{});
  EXPECT_EQ(scalar.as<double>()[0], 2.5);
  ASSERT_OK_AND_ASSIGN(const HostTensor empty, file->Read("empty"));
  EXPECT_EQ(empty.dims(), (Dims{0, 3}));
}

TEST(GgufTest, WriterRefusesWhatTheFormatLacks) {
  TempDir dir;
  const auto create = [&](std::vector<TensorSpec> specs, GgufMetadata metadata = GgufMetadata()) {
    return GgufWriter::Create(dir.File("f"), metadata, std::move(specs)).status();
  };
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_STATUS(create({{"a", DType::kU32, {1}}}), code, HasSubstr("GGUF has no u32"));
  EXPECT_STATUS(create({{"a", DType::kF32, {1, 1, 1, 1, 1}}}), code, HasSubstr("at most 4"));
  EXPECT_STATUS(create({{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}}), code,
                HasSubstr("two tensors \"a\""));
  EXPECT_STATUS(create({{"a", DType::kF32, {int64_t{1} << 61}}}), code, HasSubstr("does not fit"));
  GgufMetadata bad;
  bad.Set("general.alignment", GgufValue::U32(48));
  EXPECT_STATUS(create({}, bad), code, HasSubstr("power of two"));
  GgufMetadata narrow;
  narrow.Set("k", {GgufType::kU8, {}, uint64_t{256}});
  EXPECT_STATUS(create({}, narrow), code, HasSubstr("\"k\": its value is not a u8"));
  GgufMetadata mismatch;
  mismatch.Set("k", {GgufType::kArray, GgufType::kF32, std::vector<std::string>{"x"}});
  EXPECT_FALSE(create({}, mismatch).ok());
}

TEST(GgufTest, ReadsVersionTwo) {
  std::string content = Slurp(TestData("small.gguf"));
  content[4] = 2;
  EXPECT_OK(OpenBytes(content));
  content[4] = 1;
  EXPECT_STATUS(OpenBytes(content), absl::StatusCode::kUnimplemented, HasSubstr("version 1"));
  content[4] = 0;
  content[7] = 3;
  EXPECT_STATUS(OpenBytes(content), absl::StatusCode::kUnimplemented, HasSubstr("big-endian"));
}

// One metadata entry "k" with the given bytes after its key.
std::string WithValue(const std::string& value) {
  std::string out = Head(0, 1);
  PutString(out, "k");
  return out + value;
}

TEST(GgufTest, RefusesHostileMetadata) {
  const auto code = absl::StatusCode::kDataLoss;
  EXPECT_STATUS(OpenBytes("GGUX" + std::string(20, '\0')), code, HasSubstr("not \"GGUF\""));
  EXPECT_STATUS(OpenBytes(Head(0, ~uint64_t{0})), code, HasSubstr("metadata key 1 of 1844674"));
  EXPECT_STATUS(OpenBytes(Head(~uint64_t{0}, 0)), code, HasSubstr("name of tensor 1 of 1844674"));

  std::string value;
  PutLittleEndian<uint32_t>(value, 13);
  EXPECT_STATUS(OpenBytes(WithValue(value)), code, HasSubstr("unknown value type 13"));

  value.clear();
  PutLittleEndian<uint32_t>(value, 8);
  PutLittleEndian<uint64_t>(value, ~uint64_t{0});
  EXPECT_STATUS(OpenBytes(WithValue(value)), code, HasSubstr("metadata \"k\""));

  for (const uint32_t element : {0u, 4u, 8u, 9u, 12u}) {
    value.clear();
    PutLittleEndian<uint32_t>(value, 9);
    PutLittleEndian<uint32_t>(value, element);
    PutLittleEndian<uint64_t>(value, uint64_t{1} << 61);
    EXPECT_STATUS(OpenBytes(WithValue(value + std::string(64, '\0'))), code,
                  HasSubstr("an array of 2305843009213693952"));
  }

  value.clear();
  PutLittleEndian<uint32_t>(value, 9);
  for (int depth = 0; depth < 1000; ++depth) {
    PutLittleEndian<uint32_t>(value, 9);
    PutLittleEndian<uint64_t>(value, 1);
  }
  EXPECT_STATUS(OpenBytes(WithValue(value)), code, HasSubstr("nest deeper"));

  value.clear();
  PutLittleEndian<uint32_t>(value, 7);
  EXPECT_STATUS(OpenBytes(WithValue(value + "\x02")), code, HasSubstr("a bool is 2"));

  std::string twice = Head(0, 2);
  for (int i = 0; i < 2; ++i) {
    PutString(twice, "k");
    PutLittleEndian<uint32_t>(twice, 0);
    twice += '\1';
  }
  EXPECT_STATUS(OpenBytes(twice), code, HasSubstr("the key is there twice"));

  for (const uint32_t alignment : {0u, 3u, 48u}) {
    std::string out = Head(0, 1);
    PutString(out, "general.alignment");
    PutLittleEndian<uint32_t>(out, 4);
    PutLittleEndian<uint32_t>(out, alignment);
    EXPECT_STATUS(OpenBytes(out), code, HasSubstr("not a power of two"));
  }
}

TEST(GgufTest, RefusesHostileTensors) {
  struct Case {
    std::vector<uint64_t> dims;
    uint32_t type;
    uint64_t offset;
    const char* reason;
  };
  const Case cases[] = {
      {{1, 1, 1, 1, 1}, 0, 0, "5 dims"},
      {{uint64_t{1} << 63}, 0, 0, "a dim of"},
      {{uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0, "overflow"},
      {{0, 4, uint64_t{1} << 62}, 0, 0, "overflow"},
      {{uint64_t{1} << 61}, 8, 0, "overflow"},
      {{33}, 2, 0, "not whole Q4_0 blocks of 32"},
      {{128}, 14, 0, "not whole Q6_K blocks of 256"},
      {{1}, 0, 8, "not a multiple of the alignment 32"},
      {{17}, 0, 0, "takes 68 bytes at 0 of the data, the file has 64"},
      {{1}, 0, 64, "truncated?"},
      {{1}, 0, ~uint64_t{31}, "truncated?"},
      {{1}, 23, 0, "stored as IQ4_XS, which cannot be read"},
      {{1}, 99, 0, "stored as type 99"},
  };
  for (const Case& bad : cases) {
    std::string out = Head(1, 0);
    PutTensor(out, "t", bad.dims, bad.type, bad.offset);
    Pad(out);
    out.append(64, '\0');
    const absl::Status status = OpenBytes(out);
    EXPECT_FALSE(status.ok()) << bad.reason;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("tensor \"t\""), HasSubstr(bad.reason)));
  }
  std::string overlap = Head(2, 0);
  PutTensor(overlap, "a", {16}, 0, 0);
  PutTensor(overlap, "b", {1}, 0, 32);
  Pad(overlap);
  overlap.append(64, '\0');
  EXPECT_STATUS(OpenBytes(overlap), absl::StatusCode::kDataLoss,
                AllOf(HasSubstr("tensor \"b\""), HasSubstr("overlapping")));
  std::string twice = Head(2, 0);
  PutTensor(twice, "a", {1}, 0, 0);
  PutTensor(twice, "a", {1}, 0, 32);
  Pad(twice);
  twice.append(64, '\0');
  EXPECT_STATUS(OpenBytes(twice), absl::StatusCode::kDataLoss,
                HasSubstr("the name is there twice"));
}

// Offsets above 4 GiB, in a sparse file.
TEST(GgufTest, ReadsBeyondFourGibibytes) {
  TempDir dir;
  constexpr uint64_t kBig = (uint64_t{1} << 32) + 64;
  std::string head = Head(2, 0);
  PutTensor(head, "a", {kBig / 4}, 0, 0);
  PutTensor(head, "b", {2}, 0, kBig);
  Pad(head);
  const std::string path = dir.File("big.gguf");
  Spill(path, head);
  std::filesystem::resize_file(path, head.size() + kBig);
  {
    std::ofstream out(path, std::ios::binary | std::ios::app);
    const float values[2] = {3.25f, -1.0f};
    out.write(reinterpret_cast<const char*>(values), sizeof(values));
  }
  ASSERT_OK_AND_ASSIGN(const auto file, GgufFile::Open(path));
  ASSERT_OK_AND_ASSIGN(const HostTensor b, file->Read("b"));
  EXPECT_THAT(b.as<float>(), ElementsAre(3.25f, -1.0f));
  ASSERT_OK_AND_ASSIGN(const HostTensor a, file->Read("a"));
  EXPECT_EQ(a.num_bytes(), kBig);
}

}  // namespace
}  // namespace mw::io
