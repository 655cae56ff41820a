// AtomicDirectory: a folder that appears complete or not at all.
#ifndef MESHWRIGHT_IO_ATOMIC_DIRECTORY_H_
#define MESHWRIGHT_IO_ATOMIC_DIRECTORY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/io/temporary_path.h"

namespace mw::io {

// Everything is written below `path()` = `<name>.tmp-<pid>`; Publish fsyncs each file and folder
// and renames it to `<name>`. An existing `<name>` is exchanged with the new folder in one step
// (renameat2) and then removed, so that at no instant `<name>` is missing or partial. A file
// system without that step gets two renames; a crash between them leaves `<name>.replaced-<pid>`,
// which RemoveTemporaries puts back. Destroyed unpublished, it removes what was written.
class AtomicDirectory {
 public:
  // Makes the empty temporary folder (and `name`'s parents).
  // Errors: FailedPrecondition when this process already writes the same `name`.
  static absl::StatusOr<std::unique_ptr<AtomicDirectory>> Create(const std::string& name);

  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;
  ~AtomicDirectory();

  // Where to write.
  const std::string& path() const { return temporary_->path(); }
  const std::string& name() const { return name_; }

  // After OK the folder is durable as `name()`. After an error `name()` is what it was (unless
  // the last flush of the parent folder failed: then it is either).
  absl::Status Publish();

 private:
  AtomicDirectory(std::string name, std::unique_ptr<TemporaryPath> temporary)
      : name_(std::move(name)), temporary_(std::move(temporary)) {}

  std::string name_;
  std::unique_ptr<TemporaryPath> temporary_;
  bool published_ = false;
};

// True for the names of unfinished entries: "<anything>.tmp-<digits>".
bool IsTemporaryName(const std::string& name);

// Removes unfinished entries of `dir` whose process is gone (or is this one and no longer writes
// them), puts back folders whose replacement was interrupted, and returns the names removed,
// sorted. REQUIRES: processes of one machine write into `dir`.
absl::StatusOr<std::vector<std::string>> RemoveTemporaries(const std::string& dir);

namespace internal {

// Replaces the folder `name` by `temporary` with two renames, by way of `aside`.
absl::Status ReplaceInTwoSteps(const std::string& temporary, const std::string& name,
                               const std::string& aside);

}  // namespace internal
}  // namespace mw::io

#endif  // MESHWRIGHT_IO_ATOMIC_DIRECTORY_H_
