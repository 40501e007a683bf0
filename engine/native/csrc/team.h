// The threads that compute a step together.
//
// A step is a row of phases; a phase is a number of items that any thread may take, one by one, from a
// counter. A phase is over when its items are done, not when its threads arrive: a thread that the system
// has set aside between two items holds nobody up, and one that comes late walks through what is over.
// Waiting threads spin for some microseconds, then give way, then sleep; between steps all of them sleep.
// A sleeper that is woken would be put where its waker runs, and wait there for the step to end, whenever
// a neighbour keeps the other processors busy: so the threads keep off the caller's processor.
#pragma once

#include <sched.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace noria {

struct alignas(64) Phase {
    std::atomic<int> next{0};
    std::atomic<int> done{0};
    std::atomic<int> sleepers{0};
};

class Team;

// One thread's way through one step.
class Worker {
public:
    Worker(Team& team, int thread) : team_(team), thread_(thread) {}

    int thread() const { return thread_; }

    // body(item, following) for every item that this thread gets; returns when all are done. `following` is
    // the item that it will get next, or near the end will probably get, -1: none; so that what the next one
    // reads can be fetched meanwhile.
    template <class Body>
    void phase(int items, Body&& body);

private:
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
    int capacity_ = 0;
    Step* step_ = nullptr;
    std::atomic<int> epoch_{0};   // counts steps; threads sleep on it
    std::atomic<bool> open_{false};
    std::atomic<int> inside_{0};  // threads other than the caller that may look at the step
    std::atomic<bool> ending_{false};
    std::vector<std::thread> threads_;
};

template <class Body>
void Worker::phase(int items, Body&& body) {
    Phase& phase = team_.phases_[passed_++];
    // The last items are not taken ahead: nobody shall hold one while another thread has nothing to do.
    const int ahead = items - 2 * team_.size_;
    int mine = 0;
    int item = phase.next.fetch_add(1, std::memory_order_relaxed);
    while (item < items) {
        int following = item + team_.size_;
        const bool claimed = item < ahead;
        if (claimed) following = phase.next.fetch_add(1, std::memory_order_relaxed);
        body(item, following < items ? following : -1);
        ++mine;
        item = claimed ? following : phase.next.fetch_add(1, std::memory_order_relaxed);
    }
    if (mine > 0) team_.finish(phase, mine, items);
    team_.wait(phase, items);
}

}  // namespace noria
