#include "arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace noria {

namespace {

constexpr size_t kHuge = size_t{2} << 20;
constexpr size_t kSlab = 2 * kHuge;

}  // namespace

Arena::Arena(size_t bytes) : mapped_((bytes + kHuge - 1) / kHuge * kHuge + kHuge) {
    mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping_ == MAP_FAILED) throw std::bad_alloc();
    data_ = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(mapping_) + kHuge - 1) / kHuge * kHuge);
    // A refusal leaves small pages: slower, not wrong.
    madvise(data_, mapped_ - kHuge, MADV_HUGEPAGE);
}

Arena::~Arena() { munmap(mapping_, mapped_); }

char* Arena::take(size_t bytes) {
    char* place = data_ + taken_;
    taken_ += rounded(bytes);
    return place;
}

char* Slabs::take(size_t bytes) {
    const size_t place = Arena::rounded(bytes);
    if (place > room_) {
        const size_t size = std::max(place, kSlab);
        arenas_.push_back(std::make_unique<Arena>(size));
        room_ = size;
    }
    room_ -= place;
    bytes_ += bytes;
    return arenas_.back()->take(bytes);
}

}  // namespace noria
