// Stream: text written at the end of a file, or to a stream of the process.
#ifndef MESHWRIGHT_IO_STREAM_H_
#define MESHWRIGHT_IO_STREAM_H_

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace mw::io {

// A C stream that is closed if it was opened here. Errors name its path.
class Stream {
 public:
  // `file` stays the caller's; `name` is what errors call it.
  Stream(std::FILE* file, std::string name) : Stream(file, std::move(name), false) {}
  ~Stream() { (void)Close(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Opens a file, and makes it where there is none.
  static absl::StatusOr<std::unique_ptr<Stream>> Append(const std::string& path);

  absl::Status Write(std::string_view text);
  absl::Status Flush();
  // Of a file that was opened here, what the system tells only now; of others, nothing.
  absl::Status Close();

 private:
  Stream(std::FILE* file, std::string path, bool owned)
      : file_(file), path_(std::move(path)), owned_(owned) {}

  std::FILE* file_;
  std::string path_;
  bool owned_;
};

}  // namespace mw::io

#endif  // MESHWRIGHT_IO_STREAM_H_
