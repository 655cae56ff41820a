// Compiled programs shared by the tests of one binary.
#ifndef MESHWRIGHT_TRAIN_TEST_CACHE_H_
#define MESHWRIGHT_TRAIN_TEST_CACHE_H_

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "meshwright/runtime/executable_cache.h"
#include "meshwright/train/model_files_for_test.h"

namespace mw::train {

inline std::unique_ptr<runtime::ExecutableCache> OpenCacheForTest(const std::string& folder) {
  runtime::ExecutableCacheOptions options;
  options.folder = folder;
  auto cache = runtime::ExecutableCache::Open(std::move(options));
  if (!cache.ok()) throw std::runtime_error(std::string(cache.status().message()));
  return std::move(*cache);
}

// A cache in a folder of this process, removed when it ends: tests that train the same
// model compile it once.
inline runtime::ExecutableCache* SharedTestCache() {
  static const TestDir dir;
  static const std::unique_ptr<runtime::ExecutableCache> cache =
      OpenCacheForTest(dir.File("executables"));
  return cache.get();
}

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_TEST_CACHE_H_
