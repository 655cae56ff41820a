// `tokenize` and `convert` as commands.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "meshwright/tools/commands.h"
#include "meshwright/tools/convert_command.h"
#include "meshwright/tools/tokenize_command.h"

namespace mw::tools {
namespace {

class TokenizeCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    app.add_option("--model", args_.model, "HF folder, GGUF file or checkpoint")
        ->required()
        ->option_text("MODEL");
    app.add_flag("--decode", args_.decode, "lines are JSON arrays of ids; print their text");
    app.add_flag("!--no-special-tokens", args_.add_special_tokens,
                 "leave out what the tokenizer puts around a text");
  }
  absl::Status Run(const CommandContext& context) override {
    args_.json = context.flags.json;
    return RunTokenize(args_, std::cin, std::cout);
  }

 private:
  TokenizeArgs args_;
};

class ConvertCommand : public Command {
 public:
  void Define(CLI::App& app) override {
    app.add_option("--model", args_.model, "HF folder, GGUF file, checkpoint or random:PRESET")
        ->required()
        ->option_text("MODEL");
    app.add_option("--out", args_.out, "folder, or file whose name ends in .gguf")
        ->required()
        ->option_text("DIR|FILE.gguf");
    app.add_option("--dtype", args_.dtype, "f32, bf16 or f16; else the narrowest that is exact")
        ->option_text("DTYPE");
  }
  absl::Status Run(const CommandContext& context) override {
    args_.json = context.flags.json;
    return RunConvert(args_, std::cout);
  }

 private:
  ConvertArgs args_;
};

}  // namespace

std::unique_ptr<Command> MakeTokenizeCommand() { return std::make_unique<TokenizeCommand>(); }
std::unique_ptr<Command> MakeConvertCommand() { return std::make_unique<ConvertCommand>(); }

}  // namespace mw::tools
