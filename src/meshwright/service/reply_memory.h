// ReplyMemory: what calls were answered, so that a call that is tried again does nothing twice.
#ifndef MESHWRIGHT_SERVICE_REPLY_MEMORY_H_
#define MESHWRIGHT_SERVICE_REPLY_MEMORY_H_

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshwright/service/replies.h"

namespace mw::service {

// The newest kMost replies by request id. Not thread-safe.
class ReplyMemory {
 public:
  static constexpr size_t kMost = 256;
  static constexpr size_t kMostIdBytes = 128;

  // OK for an id that can be one. Errors: InvalidArgument when it is empty or too long.
  static absl::Status CheckId(std::string_view id);

  // The reply to the call of this id; null where there is none. `call` stands for what was asked:
  // method, arguments and the batch's bytes.
  // Errors: InvalidArgument when the id was that of another call.
  absl::StatusOr<const ChangeReply*> Find(const std::string& id, const std::string& call) const;
  // Forgets the oldest one where there are more than kMost.
  void Remember(const std::string& id, const std::string& call, ChangeReply reply);

  // The replies that go with the trainer's state, as text for a checkpoint. Handles of
  // staged micro-batches don't outlive the process, and neither does the word of a save or a
  // restore, so only steps are kept.
  std::string ToJson() const;
  // Errors: DataLoss for text that ToJson does not make.
  static absl::StatusOr<ReplyMemory> FromJson(std::string_view json);

  size_t size() const { return order_.size(); }

 private:
  struct Entry {
    std::string call;
    ChangeReply reply;
  };
  std::map<std::string, Entry> entries_;
  std::deque<std::string> order_;  // oldest first
};

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_REPLY_MEMORY_H_
