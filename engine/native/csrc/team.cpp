#include "team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <climits>
#include <system_error>

namespace noria {

namespace {

constexpr int kSpins = 400;   // some ten microseconds
constexpr int kYields = 40;

void sleep_while(std::atomic<int>& word, int value) {
    syscall(SYS_futex, reinterpret_cast<int*>(&word), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void wake_all(std::atomic<int>& word) {
    syscall(SYS_futex, reinterpret_cast<int*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// Numbers too small for the normal format count as zero during a step, on every thread alike: they are slow
// and mean nothing here. The caller's own mode comes back afterwards.
class FlushToZero {
public:
    FlushToZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
    ~FlushToZero() { _mm_setcsr(before_); }

private:
    unsigned before_;
};

}  // namespace

Team::Team(int threads) : size_(threads) {
    if (sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) CPU_ZERO(&allowed_);
    try {
        for (int thread = 1; thread < threads; ++thread) threads_.emplace_back([this, thread] { live(thread); });
    } catch (const std::system_error&) {
        // The system gives no more threads: those that there are, the caller at least, take all the items.
    }
}

Team::~Team() {
    ending_ = true;
    epoch_.fetch_add(1);
    wake_all(epoch_);
    for (auto& thread : threads_) thread.join();
}

// A straggler only has to walk past finished phases.
void Team::settle() {
    while (inside_.load() != 0) sched_yield();
}

void Team::keep_off(int processor) {
    if (processor < 0 || processor == avoided_ || size_ > CPU_COUNT(&allowed_)) return;
    avoided_ = processor;
    cpu_set_t others = allowed_;
    CPU_CLR(processor, &others);
    for (auto& thread : threads_) pthread_setaffinity_np(thread.native_handle(), sizeof others, &others);
}

void Team::run(Step& step, int phases) {
    const FlushToZero mode;
    settle();
    if (phases > capacity_) {
        phases_ = std::make_unique<Phase[]>(phases);
        shares_ = std::make_unique<Share[]>(static_cast<size_t>(phases) * size_);
        capacity_ = phases;
    }
    for (int i = 0; i < phases; ++i) phases_[i].done.store(0, std::memory_order_relaxed);
    for (long i = 0; i < static_cast<long>(phases) * size_; ++i)
        shares_[i].taken.store(0, std::memory_order_relaxed);
    keep_off(sched_getcpu());
    step_ = &step;
    open_ = true;
    epoch_.fetch_add(1);
    if (size_ > 1) wake_all(epoch_);
    Worker worker(*this, 0);
    step.work(worker);
    open_ = false;
}

void Team::live(int thread) {
    const FlushToZero mode;
    int seen = 0;
    while (true) {
        int now = epoch_.load();
        while (now == seen) {
            sleep_while(epoch_, seen);
            now = epoch_.load();
        }
        seen = now;
        if (ending_) return;
        inside_.fetch_add(1);
        // Read after inside_ was raised: from here on the caller neither ends the step's memory nor
        // begins another step.
        if (open_.load()) {
            Worker worker(*this, thread);
            step_->work(worker);
        }
        inside_.fetch_sub(1);
    }
}

void Team::finish(Phase& phase, int mine, int items) {
    const int done = phase.done.fetch_add(mine) + mine;
    // Whoever sleeps has raised `sleepers` before it looked at `done` for the last time.
    if (done == items && phase.sleepers.load() != 0) wake_all(phase.done);
}

void Team::wait(Phase& phase, int items) {
    for (int i = 0; i < kSpins; ++i) {
        if (phase.done.load(std::memory_order_acquire) >= items) return;
        _mm_pause();
    }
    for (int i = 0; i < kYields; ++i) {
        if (phase.done.load(std::memory_order_acquire) >= items) return;
        sched_yield();
    }
    phase.sleepers.fetch_add(1);
    int done = phase.done.load();
    while (done < items) {
        sleep_while(phase.done, done);
        done = phase.done.load();
    }
    phase.sleepers.fetch_sub(1);
}

}  // namespace noria
