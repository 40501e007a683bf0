#include "foresight.h"

#include <algorithm>

namespace noria {

namespace {
constexpr int kLine = 64;
}

Foresight::Foresight(const Owners* owners, int change, int changes, const Worker& worker, int items)
    : owners_(owners), next_(change + 1), changes_(changes) {
    if (owners == nullptr || next_ >= changes) return;
    const Worker::Range share = worker.share(owners->shrinks());
    const int panels = std::max(worker.share(items).size(), 1);
    item_ = share.begin, end_ = share.end;
    for (int item = item_; item < end_; ++item) portion_ += lines_of(item);
    portion_ = (portion_ + panels - 1) / panels;
}

// The next stretch of the same adapter reads what is there already.
long Foresight::lines_of(int item) const {
    const Shrink shrink = owners_->shrink(item, next_);
    return owners_->begins(*shrink.stretch) ? (shrink.end - shrink.first) * (shrink.change->a_bytes / kLine) : 0;
}

void Foresight::look(int change, int panel) {
    pieces.count = 0;
    if (owners_ == nullptr || change >= changes_) return;
    for (const Stretch& stretch : owners_->stretches()) {
        if (!owners_->begins(stretch)) continue;
        const Change& own = stretch.changes[change];
        if (own.ranks == 0) continue;
        const Block* blocks = own.blocks + 2 * panel;
        pieces.add(own.b + blocks[0].at, (blocks[2].at - blocks[0].at + kLine - 1) / kLine);
    }
    add_portion();
}

void Foresight::add_portion() {
    for (long left = portion_; left > 0 && item_ < end_;) {
        const long all = lines_of(item_), lines = std::min(left, all - done_);
        const Shrink shrink = owners_->shrink(item_, next_);
        pieces.add(shrink.change->a + shrink.first * shrink.change->a_bytes + done_ * kLine, lines);
        left -= lines, done_ += lines;
        if (done_ == all) ++item_, done_ = 0;
    }
}

}  // namespace noria
