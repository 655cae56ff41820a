#include "meshwright/io/checksum.h"

#include <nlohmann/json.hpp>

#include "meshwright/io/file_util.h"
#include "meshwright/io/test_util.h"

namespace mw::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ChecksumTest, AgreesWithPythonXxhash) {
  const auto expected = nlohmann::json::parse(Slurp(TestData("expected.json")))["xxh3_128"];
  ASSERT_EQ(expected.size(), 3u);
  for (const auto& [text, hex] : expected.items()) {
    const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
    EXPECT_EQ(ChecksumBytes(bytes), hex.get<std::string>());
    Checksum running;
    for (const std::byte& byte : bytes) running.Update({&byte, 1});
    EXPECT_EQ(running.HexDigest(), hex.get<std::string>());
  }
}

class ManifestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(MakeDirectories(dir_.File("optimizer")));
    Spill(dir_.File("a.safetensors"), "aaaa");
    Spill(dir_.File("optimizer/b.safetensors"), "bbbb");
    ASSERT_OK_AND_ASSIGN(const Manifest manifest, Manifest::FromDirectory(dir_.path()));
    ASSERT_OK(manifest.WriteTo(dir_.path()));
  }

  absl::Status Verify() {
    auto manifest = Manifest::ReadFrom(dir_.path());
    return manifest.ok() ? manifest->Verify(dir_.path()) : manifest.status();
  }

  TempDir dir_;
};

TEST_F(ManifestTest, VerifiesWhatItWrote) {
  EXPECT_OK(Verify());
  ASSERT_OK_AND_ASSIGN(const Manifest manifest, Manifest::ReadFrom(dir_.path()));
  ASSERT_EQ(manifest.files().size(), 2u);
  EXPECT_EQ(manifest.files()[1].name, "optimizer/b.safetensors");
  Spill(dir_.File("unlisted"), "x");
  EXPECT_OK(Verify());
}

TEST_F(ManifestTest, NamesTheDamagedFile) {
  Spill(dir_.File("optimizer/b.safetensors"), "bbxb");
  EXPECT_STATUS(Verify(), absl::StatusCode::kDataLoss,
                AllOf(HasSubstr("optimizer/b.safetensors"), HasSubstr("damaged")));
}

TEST_F(ManifestTest, NamesTheTruncatedFile) {
  Spill(dir_.File("a.safetensors"), "aaa");
  EXPECT_STATUS(Verify(), absl::StatusCode::kDataLoss,
                AllOf(HasSubstr("a.safetensors has 3 bytes"), HasSubstr("says 4")));
}

TEST_F(ManifestTest, NamesTheMissingFile) {
  std::filesystem::remove(dir_.File("a.safetensors"));
  EXPECT_STATUS(Verify(), absl::StatusCode::kDataLoss, HasSubstr("a.safetensors is missing"));
}

TEST_F(ManifestTest, RefusesADamagedManifest) {
  const std::string path = dir_.File(Manifest::kFileName);
  const std::string text = Slurp(path);
  for (size_t size = 0; size + 2 < text.size(); ++size) {
    Spill(path, text.substr(0, size));
    EXPECT_FALSE(Verify().ok()) << size;
  }
  Spill(path, R"({"format": "meshwright-manifest-1", "files": [{"name": "../x", "size_bytes": 1,
        "xxh3_128": "00000000000000000000000000000000"}]})");
  EXPECT_STATUS(Verify(), absl::StatusCode::kDataLoss, HasSubstr("../x"));
  Spill(path, R"({"format": "other", "files": []})");
  EXPECT_STATUS(Verify(), absl::StatusCode::kDataLoss, HasSubstr("meshwright-manifest-1"));
  std::filesystem::remove(path);
  EXPECT_STATUS(Verify(), absl::StatusCode::kNotFound, HasSubstr(path));
}

TEST(ManifestAddTest, RefusesBadNames) {
  Manifest manifest;
  EXPECT_OK(manifest.Add({"a", 1, ""}));
  for (const char* name : {"a", "", "/etc/passwd", "../a", "b/../../c"}) {
    EXPECT_EQ(manifest.Add({name, 1, ""}).code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

}  // namespace
}  // namespace mw::io
