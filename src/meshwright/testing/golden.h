// Golden files: expected text that is stored in the repository.
#ifndef MESHWRIGHT_TESTING_GOLDEN_H_
#define MESHWRIGHT_TESTING_GOLDEN_H_

#include <string>
#include <string_view>

namespace mw {

// Compares `actual` with the stored file `path_under_source_dir` (relative to the
// repository root) and fails the running test with a line diff when they differ.
//
// With MW_UPDATE_GOLDENS=1 in the environment (`./dev golden FILTER`) the file is
// written instead. With CI=true as well the test fails: CI never rewrites.
//
// Errors: a missing file, an unwritable one and a path that leaves the repository
// fail the test, naming the path.
void ExpectGolden(const std::string& actual, const std::string& path_under_source_dir);

// Line diff from `expected` to `actual`, in the form of `diff -u`: at most
// `max_hunks` places with three lines of context. Empty when they are equal.
std::string LineDiff(std::string_view expected, std::string_view actual, int max_hunks = 5);

}  // namespace mw

#endif  // MESHWRIGHT_TESTING_GOLDEN_H_
