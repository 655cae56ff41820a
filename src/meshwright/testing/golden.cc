#include "meshwright/testing/golden.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace mw {
namespace {

namespace fs = std::filesystem;

constexpr int kContextLines = 3;
// Texts with more differing lines than this are cut before the quadratic alignment.
constexpr size_t kMaxAlignedLines = 2000;

std::vector<std::string_view> SplitLines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) {
      lines.push_back(text);
      break;
    }
    lines.push_back(text.substr(0, end + 1));
    text.remove_prefix(end + 1);
  }
  return lines;
}

// One line of the aligned texts: ' ' in both, '-' only expected, '+' only actual.
struct DiffLine {
  char mark;
  std::string_view text;
};

// Longest-common-subsequence alignment of `a` and `b`.
void Align(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b,
           std::vector<DiffLine>& out) {
  const size_t rows = a.size();
  const size_t cols = b.size();
  std::vector<uint16_t> length((rows + 1) * (cols + 1), 0);
  const auto at = [&](size_t i, size_t j) -> uint16_t& { return length[i * (cols + 1) + j]; };
  for (size_t i = rows; i-- > 0;) {
    for (size_t j = cols; j-- > 0;) {
      at(i, j) = a[i] == b[j] ? static_cast<uint16_t>(at(i + 1, j + 1) + 1)
                              : std::max(at(i + 1, j), at(i, j + 1));
    }
  }
  size_t i = 0;
  size_t j = 0;
  while (i < rows || j < cols) {
    if (i < rows && j < cols && a[i] == b[j]) {
      out.push_back({' ', a[i]});
      ++i;
      ++j;
    } else if (j == cols || (i < rows && at(i + 1, j) >= at(i, j + 1))) {
      out.push_back({'-', a[i++]});
    } else {
      out.push_back({'+', b[j++]});
    }
  }
}

void AppendLine(const DiffLine& line, std::string& out) {
  out += line.mark;
  out += line.text;
  if (line.text.empty() || line.text.back() != '\n') out += "\n\\ no newline at end\n";
}

bool IsSet(const char* name, std::string_view value) {
  const char* text = std::getenv(name);
  return text != nullptr && value == text;
}

bool LeavesRoot(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  return path.empty() || path.is_absolute() || normal.begin()->string() == "..";
}

}  // namespace

std::string LineDiff(std::string_view expected, std::string_view actual, int max_hunks) {
  if (expected == actual) return "";
  std::vector<std::string_view> a = SplitLines(expected);
  std::vector<std::string_view> b = SplitLines(actual);
  size_t prefix = 0;
  while (prefix < a.size() && prefix < b.size() && a[prefix] == b[prefix]) ++prefix;
  size_t suffix = 0;
  while (suffix < a.size() - prefix && suffix < b.size() - prefix &&
         a[a.size() - 1 - suffix] == b[b.size() - 1 - suffix]) {
    ++suffix;
  }

  // Only the middle needs aligning; the equal ends give context.
  std::vector<DiffLine> lines;
  const size_t first = prefix - std::min<size_t>(prefix, kContextLines);
  for (size_t i = first; i < prefix; ++i) lines.push_back({' ', a[i]});
  std::vector<std::string_view> middle_a(a.begin() + prefix, a.end() - suffix);
  std::vector<std::string_view> middle_b(b.begin() + prefix, b.end() - suffix);
  const bool cut = middle_a.size() > kMaxAlignedLines || middle_b.size() > kMaxAlignedLines;
  middle_a.resize(std::min(middle_a.size(), kMaxAlignedLines));
  middle_b.resize(std::min(middle_b.size(), kMaxAlignedLines));
  Align(middle_a, middle_b, lines);
  if (!cut) {
    const size_t end = std::min<size_t>(suffix, kContextLines);
    for (size_t i = 0; i < end; ++i) lines.push_back({' ', a[a.size() - suffix + i]});
  }

  std::string out = "--- expected\n+++ actual\n";
  size_t expected_line = first + 1;
  size_t actual_line = first + 1;
  int hunks = 0;
  size_t next = 0;
  while (next < lines.size()) {
    if (lines[next].mark == ' ') {
      ++next;
      ++expected_line;
      ++actual_line;
      continue;
    }
    if (hunks++ == max_hunks) {
      out += "... more differences follow\n";
      return out;
    }
    const size_t context = std::min<size_t>(next, kContextLines);
    out += fmt::format("@@ -{} +{} @@\n", expected_line - context, actual_line - context);
    for (size_t i = next - context; i < next; ++i) AppendLine(lines[i], out);
    size_t equal = 0;  // equal lines since the last difference
    while (next < lines.size() && equal < kContextLines) {
      AppendLine(lines[next], out);
      equal = lines[next].mark == ' ' ? equal + 1 : 0;
      expected_line += lines[next].mark != '+';
      actual_line += lines[next].mark != '-';
      ++next;
    }
  }
  if (cut) out += fmt::format("... cut: more than {} lines differ\n", kMaxAlignedLines);
  return out;
}

void ExpectGolden(const std::string& actual, const std::string& path_under_source_dir) {
  if (LeavesRoot(path_under_source_dir)) {
    ADD_FAILURE() << "golden path must stay under the repository root: '" << path_under_source_dir
                  << "'";
    return;
  }
  const fs::path path = fs::path(MW_SOURCE_DIR) / path_under_source_dir;
  if (IsSet("MW_UPDATE_GOLDENS", "1")) {
    if (IsSet("CI", "true")) {
      ADD_FAILURE() << "refusing to rewrite " << path_under_source_dir
                    << ": MW_UPDATE_GOLDENS=1 with CI=true; unset one of them";
      return;
    }
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << actual;
    file.close();
    if (!file) ADD_FAILURE() << "cannot write golden " << path.string();
    return;
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    ADD_FAILURE() << "no golden " << path_under_source_dir
                  << "; `./dev golden FILTER` writes it. Actual text:\n"
                  << actual;
    return;
  }
  std::ostringstream stored;
  stored << file.rdbuf();
  if (stored.str() == actual) return;
  ADD_FAILURE() << "differs from golden " << path_under_source_dir
                << "; `./dev golden FILTER` rewrites it if the change is meant\n"
                << LineDiff(stored.str(), actual);
}

}  // namespace mw
