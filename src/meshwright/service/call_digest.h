// CallDigest: what a call asks for, as one word.
#ifndef MESHWRIGHT_SERVICE_CALL_DIGEST_H_
#define MESHWRIGHT_SERVICE_CALL_DIGEST_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "meshwright/core/tensor_type.h"
#include "meshwright/data/batch.h"
#include "meshwright/io/checksum.h"

namespace mw::service {

// Of a call that is tried again it is the same, and of another call another.
class CallDigest {
 public:
  explicit CallDigest(std::string_view method) { Add(method); }

  CallDigest& Add(std::string_view text) {
    const uint64_t size = text.size();  // "ab", "c" is not "a", "bc"
    checksum_.Update(std::as_bytes(std::span(&size, 1)));
    checksum_.Update(std::as_bytes(std::span(text)));
    return *this;
  }
  CallDigest& AddFlag(bool flag) { return Add(flag ? "yes" : "no"); }
  CallDigest& Add(const data::Batch& batch) {
    for (const auto& [name, tensor] : batch.Tensors()) {
      Add(name).Add(TensorType(tensor.dtype(), tensor.dims()).ToString());
      checksum_.Update(std::span(tensor.bytes(), tensor.num_bytes()));
    }
    return *this;
  }
  std::string Take() const { return checksum_.HexDigest(); }

 private:
  io::Checksum checksum_;
};

}  // namespace mw::service

#endif  // MESHWRIGHT_SERVICE_CALL_DIGEST_H_
