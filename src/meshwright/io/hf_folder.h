// HfFolder: a Hugging Face model folder.
#ifndef MESHWRIGHT_IO_HF_FOLDER_H_
#define MESHWRIGHT_IO_HF_FOLDER_H_

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/io/checksum.h"
#include "meshwright/io/tensor_source.h"

namespace mw::io {

// config.json, the weights (model.safetensors or a sharded index) and the tokenizer's files.
class HfFolder : public TensorSource {
 public:
  // Errors: NotFound with one sentence naming the missing piece; whatever the weight files report.
  static absl::StatusOr<std::shared_ptr<HfFolder>> Open(const std::string& dir);
  ~HfFolder() override;

  const std::string& path() const override { return dir_; }
  const std::vector<std::string>& names() const override { return weights_->names(); }
  absl::StatusOr<TensorInfo> info(std::string_view name) const override;
  absl::StatusOr<HostTensor> Read(std::string_view name) const override;

  // The bytes of config.json, and parsed (always an object).
  const std::string& config_text() const { return config_text_; }
  const nlohmann::json& config() const { return *config_; }

  // Plain names of the weight files, the index included.
  const std::vector<std::string>& weight_files() const { return weight_files_; }
  // Plain names of the files an export carries over byte for byte: tokenizer, chat template,
  // generation_config.json. Only those that are there.
  const std::vector<std::string>& tokenizer_files() const { return tokenizer_files_; }

  // OK when there is a tokenizer to load (tokenizer.json).
  absl::Status RequireTokenizer() const;

  // Copies tokenizer_files() into `dir`; the digests' names are relative to it.
  absl::StatusOr<std::vector<FileDigest>> CopyTokenizerFiles(const std::string& dir) const;

 private:
  HfFolder();

  std::string dir_;
  std::string config_text_;
  std::unique_ptr<nlohmann::json> config_;
  std::shared_ptr<TensorSource> weights_;
  std::vector<std::string> weight_files_;
  std::vector<std::string> tokenizer_files_;
};

// The tokenizer files present in `dir`, as HfFolder::tokenizer_files; for folders without weights.
std::vector<std::string> ListTokenizerFiles(const std::string& dir);

}  // namespace mw::io

#endif  // MESHWRIGHT_IO_HF_FOLDER_H_
