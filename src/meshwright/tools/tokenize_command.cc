#include "meshwright/tools/tokenize_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "meshwright/base/status_macros.h"
#include "meshwright/train/open_model.h"
#include "meshwright/train/tokenizer_source.h"

namespace mw::tools {
namespace {

absl::StatusOr<std::vector<int32_t>> ParseIds(const std::string& line, int64_t number,
                                              int32_t vocab_size) {
  const auto wrong = [&](const std::string& problem) {
    return absl::InvalidArgumentError(fmt::format("line {}: {}", number, problem));
  };
  const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, false);
  if (!parsed.is_array()) return wrong("not a JSON array of token ids, such as [1, 2]");
  std::vector<int32_t> ids;
  for (const nlohmann::json& id : parsed) {
    if (!id.is_number_integer() || id < 0 || id >= vocab_size) {
      return wrong(fmt::format("{} is no token id from 0 to {}", id.dump(), vocab_size - 1));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace

absl::Status RunTokenize(const TokenizeArgs& args, std::istream& in, std::ostream& out) {
  MW_ASSIGN_OR_RETURN(const train::OpenedModel opened, train::OpenModel(args.model, args.base));
  MW_ASSIGN_OR_RETURN(const data::Tokenizer tokenizer, train::LoadTokenizer(opened));
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (!args.decode) {
      const std::vector<int32_t> ids =
          tokenizer.Encode(line, {.add_special_tokens = args.add_special_tokens});
      out << fmt::format("[{}]\n", fmt::join(ids, ", "));
      continue;
    }
    MW_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                        ParseIds(line, number, tokenizer.vocab_size()));
    out << (args.json ? nlohmann::json(tokenizer.DecodeLossy(ids)).dump() : tokenizer.Decode(ids))
        << '\n';
  }
  if (in.bad()) return absl::DataLossError("cannot read the input");
  if (!out.flush()) return absl::UnavailableError("cannot write the output");
  return absl::OkStatus();
}

}  // namespace mw::tools
