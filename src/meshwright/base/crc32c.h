// CRC-32C (Castagnoli), as TFRecord files frame their records.
#ifndef MESHWRIGHT_BASE_CRC32C_H_
#define MESHWRIGHT_BASE_CRC32C_H_

#include <cstdint>
#include <string_view>

namespace mw {

// The checksum of `data`. Source: RFC 3720, appendix B.4.
uint32_t Crc32c(std::string_view data);

// The checksum as TFRecord stores it: rotated and shifted, so that the checksum of
// data that holds its own is not a constant.
uint32_t MaskedCrc32c(std::string_view data);

}  // namespace mw

#endif  // MESHWRIGHT_BASE_CRC32C_H_
