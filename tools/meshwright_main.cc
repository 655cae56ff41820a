#include "meshwright/tools/command_line.h"

int main(int argc, char** argv) { return mw::tools::Main(argc, argv); }
