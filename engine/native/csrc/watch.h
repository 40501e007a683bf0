// Where a step's time goes, by kind of work. While nobody asks, a mark costs a comparison.
#pragma once

#include <chrono>
#include <cstdint>

#include "api.h"

namespace noria {

class Watch {
public:
    // From now on each step's nanoseconds are added to spent[noria_kind]; null: no more. The caller owns it.
    void add_to(int64_t* spent) { spent_ = spent; }

    void begin() {
        if (spent_ != nullptr) since_ = Clock::now();
    }

    // The work since the last mark was of this kind. Phases end for all threads at once, so that the first
    // one's time, waiting for the others included, is the step's.
    void mark(int thread, noria_kind kind) {
        if (spent_ == nullptr || thread != 0) return;
        const Clock::time_point now = Clock::now();
        spent_[kind] += std::chrono::nanoseconds(now - since_).count();
        since_ = now;
    }

private:
    using Clock = std::chrono::steady_clock;
    int64_t* spent_ = nullptr;
    Clock::time_point since_;
};

}  // namespace noria
