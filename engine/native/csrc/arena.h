// Memory for what is read every step: mapped once, aligned to 2 MiB and put on huge pages where the system
// has them (reading through 4 KiB pages costs half the bandwidth).
#pragma once

#include <cstddef>

namespace noria {

class Arena {
public:
    // Zeroed; costs no memory until it is written. Throws std::bad_alloc.
    explicit Arena(size_t bytes);
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    char* data() const { return data_; }
    // The next `bytes`, aligned to a cache line. The caller has counted them into the size.
    char* take(size_t bytes);

    static size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

private:
    void* mapping_;
    size_t mapped_;
    char* data_;
    size_t taken_ = 0;
};

}  // namespace noria
