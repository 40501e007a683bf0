// Memory for what is read every step: mapped once, aligned to 2 MiB and put on huge pages where the system
// has them (reading through 4 KiB pages costs half the bandwidth).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

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

// Memory for many things that come one by one and go together. They lie side by side, as far as they fit: an arena
// of its own would cost each of them a huge page.
class Slabs {
public:
    // Zeroed, and aligned to a cache line. Throws std::bad_alloc.
    char* take(size_t bytes);
    // All that was taken.
    int64_t bytes() const { return bytes_; }

private:
    std::vector<std::unique_ptr<Arena>> arenas_;
    size_t room_ = 0;  // left in the last of them
    int64_t bytes_ = 0;
};

}  // namespace noria
