// The threads that compute a step together.
//
// A step is a row of phases; a phase is a number of items. Each thread has a share of them, side by side, so
// that it reads memory in one stream and finds what it wrote in the phase before; whoever is through with
// his share takes items off the end of the others', one by one. A phase is over when its items are done,
// not when its threads arrive: a thread that the system has set aside between two items holds nobody up,
// and one that comes late walks through what is over.
// Waiting threads spin for some microseconds, then give way, then sleep; between steps all of them sleep.
// A sleeper that is woken would be put where its waker runs, and wait there for the step to end, whenever
// a neighbour keeps the other processors busy: so the threads keep off the caller's processor.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace noria {

struct alignas(64) Phase {
    std::atomic<int> done{0};
    std::atomic<int> sleepers{0};
};

// How many items of one thread's share have been taken: from its front by the thread itself (upper half),
// from its end by others (lower half). A counter may run past the size of the share: then it is empty.
struct alignas(64) Share {
    std::atomic<uint64_t> taken{0};
};

class Team;

// One thread's way through one step.
class Worker {
public:
    Worker(Team& team, int thread) : team_(team), thread_(thread) {}

    int thread() const { return thread_; }

    // body(item, following) for every item that this thread gets; returns when all are done. `following` is
    // the item that it will probably get next, -1: none; so that what that one reads can be fetched meanwhile.
    template <class Body>
    void phase(int items, Body&& body) {
        wait(begin(items, body), items);
    }

    // The two halves of a phase: this thread's items; and until all are done, before their results are read.
    template <class Body>
    int begin(int items, Body&& body);
    void wait(int phase, int items);

    // This thread's share of a phase: items begin .. end - 1.
    struct Range {
        int begin, end;
        int size() const { return end - begin; }
    };
    Range share(int items) const;
    int first_of(int items) const { return share(items).begin; }

private:
    template <class Body>
    int take(Share& share, int begin, int end, bool own, Body&& body);

    Team& team_;
    int thread_;
    int passed_ = 0;
};

class Step {
public:
    virtual ~Step() = default;
    // Runs on every thread at once; all make the same sequence of phase() calls, as many
    // as run() was told at most.
    virtual void work(Worker& worker) = 0;
};

class Team {
public:
    explicit Team(int threads);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int size() const { return size_; }
    // Waits until no thread looks at the step before; its memory may be changed then.
    void settle();
    // Returns when every phase is over. The caller is one of the threads. `phases`: an upper bound.
    void run(Step& step, int phases);

private:
    friend class Worker;
    void live(int thread);
    void keep_off(int processor);
    void finish(Phase& phase, int mine, int items);
    void wait(Phase& phase, int items);

    int size_;
    cpu_set_t allowed_;    // the processors that the process may use
    int avoided_ = -1;     // the one that the other threads keep off
    std::unique_ptr<Phase[]> phases_;
    std::unique_ptr<Share[]> shares_;  // [phases][threads]
    int capacity_ = 0;
    Step* step_ = nullptr;
    std::atomic<int> epoch_{0};   // counts steps; threads sleep on it
    std::atomic<bool> open_{false};
    std::atomic<int> inside_{0};  // threads other than the caller that may look at the step
    std::atomic<bool> ending_{false};
    std::vector<std::thread> threads_;
};

inline int share_begin(int items, int thread, int threads) {
    return static_cast<int>(static_cast<long>(items) * thread / threads);
}

inline Worker::Range Worker::share(int items) const {
    return {share_begin(items, thread_, team_.size_), share_begin(items, thread_ + 1, team_.size_)};
}

template <class Body>
int Worker::begin(int items, Body&& body) {
    const int threads = team_.size_, index = passed_++;
    Phase& phase = team_.phases_[index];
    Share* shares = &team_.shares_[static_cast<long>(index) * threads];
    int mine = 0;
    for (int i = 0; i < threads; ++i) {
        const int owner = (thread_ + i) % threads;
        mine += take(shares[owner], share_begin(items, owner, threads), share_begin(items, owner + 1, threads),
                     i == 0, body);
    }
    if (mine > 0) team_.finish(phase, mine, items);
    return index;
}

inline void Worker::wait(int phase, int items) { team_.wait(team_.phases_[phase], items); }

// What is left of a share, from its front where it is this thread's own, else from its end; how many that were.
template <class Body>
int Worker::take(Share& share, int begin, int end, bool own, Body&& body) {
    const int size = end - begin;
    for (int mine = 0;; ++mine) {
        const uint64_t taken = share.taken.fetch_add(own ? uint64_t{1} << 32 : 1, std::memory_order_relaxed);
        const int front = static_cast<int>(taken >> 32), back = static_cast<int>(taken & 0xffffffff);
        if (front + back >= size) return mine;
        const int item = own ? begin + front : end - 1 - back;
        body(item, front + back + 1 == size ? -1 : own ? item + 1 : item - 1);
    }
}

}  // namespace noria
