// The threads that compute a step together.
//
// A step is a row of phases; a phase is a number of items that any thread may take, one by one, from a
// counter. A phase is over when its items are done, not when its threads arrive: a thread that the system
// has set aside between two items holds nobody up, and one that comes late walks through what is over.
// Waiting threads spin for some microseconds, then give way, then sleep; between steps all of them sleep.
#pragma once

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

    // body(item, following item or -1) for every item that this thread gets; returns when all are done.
    // The following item is taken before the body runs, so that its weights can be fetched meanwhile.
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
    void finish(Phase& phase, int mine, int items);
    void wait(Phase& phase, int items);

    int size_;
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
    int mine = 0;
    int item = phase.next.fetch_add(1, std::memory_order_relaxed);
    while (item < items) {
        const int claimed = phase.next.fetch_add(1, std::memory_order_relaxed);
        const int following = claimed < items ? claimed : -1;
        body(item, following);
        ++mine;
        item = claimed;
    }
    if (mine > 0) team_.finish(phase, mine, items);
    team_.wait(phase, items);
}

}  // namespace noria
