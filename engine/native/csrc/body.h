// The kernels, written once over the sixteen lanes of vec_*.h, and their tables.

#include "lanes.h"
#include "activations.h"
#include "quantise.h"
#include "gemm.h"
#include "gemm_int8.h"
#include "gemm_change.h"
#include "rows.h"
#include "attention.h"
#include "attention_int8.h"
#include "choice.h"
#include "draw.h"
#include "score.h"

template <class T>
constexpr long kScratch = sizeof(Scratch<T>) > sizeof(Int8Scratch) ? sizeof(Scratch<T>) : sizeof(Int8Scratch);

template <class T>
constexpr Kernels table() {
    return {&embed<T>,     &normalise<T>,   &add_normed,   &quantise<T>, &multiply<T>,      &deliver_sums<T>,
            &inward<T>,    &expand<T>,      &cap,          &add_share,   &prepare<T>,       &attend<T>,
            &prepare_int8<T>, &attend_int8<T>, &best,
            &score,        &highest_of,     &share_out,    &drop_below,  &sum_up,           kScratch<T>};
}

constexpr Kernels kBf16 = table<bf16>();
constexpr Kernels kFloat = table<float>();
