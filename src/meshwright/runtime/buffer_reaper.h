// BufferReaper: destroys buffers on a thread of its own.
#ifndef MESHWRIGHT_RUNTIME_BUFFER_REAPER_H_
#define MESHWRIGHT_RUNTIME_BUFFER_REAPER_H_

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "meshwright/runtime/buffer.h"

namespace mw::runtime {

// A plugin takes a microsecond or so to destroy a handle, also of a buffer that was
// donated: milliseconds for the thousands that a step leaves behind. Not for memory that
// must be free at once, unless Drain is called before it is needed.
class BufferReaper {
 public:
  BufferReaper() : thread_([this] { Run(); }) {}
  // Destroys what is left.
  ~BufferReaper();
  BufferReaper(const BufferReaper&) = delete;
  BufferReaper& operator=(const BufferReaper&) = delete;

  // Takes the buffers and leaves `buffers` empty; its capacity, or that of an earlier list,
  // stays with the caller, so that nothing is allocated once lists have their size.
  void Take(std::vector<Buffer>& buffers);
  // Blocks until all that was taken is destroyed.
  void Drain();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Buffer> waiting_;
  bool busy_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace mw::runtime

#endif  // MESHWRIGHT_RUNTIME_BUFFER_REAPER_H_
