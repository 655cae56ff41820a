// PreparedInput: a micro-batch that lies on the devices already.
#ifndef MESHWRIGHT_TRAIN_PREPARED_INPUT_H_
#define MESHWRIGHT_TRAIN_PREPARED_INPUT_H_

#include <memory>

namespace mw::train {

// What PrepareFwdBwdInput of an engine returns and its FwdBwd takes, once. Frees its part of
// the devices' memory when it is destroyed.
class PreparedInput {
 public:
  PreparedInput() noexcept;  // empty
  PreparedInput(PreparedInput&& other) noexcept;
  PreparedInput& operator=(PreparedInput&& other) noexcept;
  ~PreparedInput();

  // Whether there is nothing in it: it was taken, or moved elsewhere.
  bool empty() const { return data_ == nullptr; }

 private:
  friend class Engine;
  struct Data;
  explicit PreparedInput(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

}  // namespace mw::train

#endif  // MESHWRIGHT_TRAIN_PREPARED_INPUT_H_
