// The commands of the program. Each is made once, by the command line.
#ifndef MESHWRIGHT_TOOLS_COMMANDS_H_
#define MESHWRIGHT_TOOLS_COMMANDS_H_

#include <memory>

#include "meshwright/tools/command.h"

namespace mw::tools {

std::unique_ptr<Command> MakeSftCommand();
std::unique_ptr<Command> MakeGrpoCommand();
std::unique_ptr<Command> MakeEvalCommand();
std::unique_ptr<Command> MakeGenerateCommand();
std::unique_ptr<Command> MakeTokenizeCommand();
std::unique_ptr<Command> MakeConvertCommand();
std::unique_ptr<Command> MakePlotCommand();

std::unique_ptr<Command> MakeServeCommand();

std::unique_ptr<Command> MakePlanCommand();
// Of the program itself: a compilation of `plan`.
std::unique_ptr<Command> MakePlanKernelCommand();

std::unique_ptr<Command> MakeInspectForwardCommand();
std::unique_ptr<Command> MakeInspectGradCommand();
std::unique_ptr<Command> MakeInspectStepCommand();
std::unique_ptr<Command> MakeInspectProgramCommand();
std::unique_ptr<Command> MakeInspectCheckpointCommand();
std::unique_ptr<Command> MakeInspectScheduleCommand();
std::unique_ptr<Command> MakeInspectRulesCommand();

}  // namespace mw::tools

#endif  // MESHWRIGHT_TOOLS_COMMANDS_H_
