// The folder of a run: whether one may be written there, and who is writing.
#ifndef MESHWRIGHT_TRAIN_RUN_FOLDER_H_
#define MESHWRIGHT_TRAIN_RUN_FOLDER_H_

#include <string>

#include "absl/status/status.h"

namespace mw::train {

// Keeps a second run out of a folder for as long as it lives, also when the process is killed.
class FolderLock {
 public:
  FolderLock() = default;
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Errors: FailedPrecondition when another run holds it. File systems without locks have none.
  absl::Status Lock(const std::string& dir);

 private:
  int fd_ = -1;
};

// OK when a run may write into `out`, or with `resume` continue the one in it.
// Errors: FailedPrecondition for a file, a folder of checkpoints, one that another run holds and,
// without `resume`, one that is not empty; InvalidArgument for ""; those of CheckWritable.
absl::Status CheckOutFolder(const std::string& out, bool resume);

// What is no file would be read without an end, or not be there afterwards.
// Errors: FailedPrecondition.
absl::Status CheckMetricsFile(const std::string& out);

// OK when files can be made in the folder `path`, which need not exist and is left as
// it was. Errors: those of the file system, with the path.
absl::Status CheckWritable(const std::string& path);

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_RUN_FOLDER_H_
