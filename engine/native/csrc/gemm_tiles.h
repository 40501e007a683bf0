// Products of bf16 by tiles of 16 rows, 16 columns and 32 terms. A row's sums do not depend on the rows beside
// it: each takes the same tiles of weights in the same order, whichever tile of rows it is part of.

constexpr int kTileRows = 16;
constexpr int kTileTerms = 32;

// The last terms of a panel or of some rows, with zeros up to a whole tile.
struct alignas(64) Tail {
    bf16 terms[kTileRows][kTileTerms];
};

INLINE void fill(Tail& tail, const bf16* from, long stride, int rows, int terms) {
    __builtin_memset(&tail, 0, sizeof tail);
    for (int row = 0; row < rows; ++row)
        __builtin_memcpy(tail.terms[row], from + row * stride, terms * sizeof(bf16));
}

template <int M, class Tiles>
INLINE void multiply_tile(Tiles& tiles) {
    tiles.template multiply<0, 4, 6>(), tiles.template multiply<1, 4, 7>();
    if constexpr (M == 2) tiles.template multiply<2, 5, 6>(), tiles.template multiply<3, 5, 7>();
}

// M tiles of rows, which begin at x[m], by the 32 columns of a panel.
template <int M, class Tiles>
INLINE void panel_tiles(Tiles& tiles, int rows, const bf16* const (&x)[M], long stride, const bf16* w, int k,
                        Fetch fetch, float (&sums)[M][kTileRows][kPanel]) {
    constexpr long kPair = 2 * kPanel;  // elements of a panel for each pair of terms
    tiles.template zero<0>(), tiles.template zero<1>();
    if constexpr (M == 2) tiles.template zero<2>(), tiles.template zero<3>();
    int done = 0;
    for (; done + kTileTerms <= k; done += kTileTerms, w += kPair * kTileTerms / 2) {
        fetch();
        tiles.template load<6>(w, 2 * kPair), tiles.template load<7>(w + kPair / 2, 2 * kPair);
        tiles.template load<4>(x[0] + done, 2 * stride);
        if constexpr (M == 2) tiles.template load<5>(x[1] + done, 2 * stride);
        multiply_tile<M>(tiles);
    }
    if (done < k) {
        Tail left, right;
        fill(right, w, kPair, (k - done) / 2, kTileTerms), tiles.template load<6>(right.terms, 64);
        fill(right, w + kPair / 2, kPair, (k - done) / 2, kTileTerms), tiles.template load<7>(right.terms, 64);
        fill(left, x[0] + done, stride, rows, k - done), tiles.template load<4>(left.terms, 64);
        if constexpr (M == 2) fill(left, x[1] + done, stride, rows, k - done), tiles.template load<5>(left.terms, 64);
        multiply_tile<M>(tiles);
    }
    constexpr long kSumStride = kPanel * sizeof(float);
    tiles.template store<0>(sums[0][0], kSumStride), tiles.template store<1>(sums[0][0] + 16, kSumStride);
    if constexpr (M == 2)
        tiles.template store<2>(sums[1][0], kSumStride), tiles.template store<3>(sums[1][0] + 16, kSumStride);
}

INLINE void deliver_tile(const float (&sums)[kTileRows][kPanel], const Product& p, int panel, int from, int to,
                         int begin) {
    for (int row = from; row < to; ++row) {
        const float* sum = sums[row - begin];
        F16 values[1][2] = {{load(sum), load(sum + 16)}};
        deliver<1, bf16>(values, p, panel, row);
    }
}

// Rows `from` to `to`, at most M tiles of them. The last tile of several reaches back over rows before it, which
// are worked out twice and delivered once.
template <int M, class Tiles>
INLINE void tile_rows(Tiles& tiles, const Product& p, int panel, int from, int to, int height, Fetch fetch) {
    alignas(64) float sums[M][kTileRows][kPanel];
    const int begin[2] = {M == 2 ? from : to - height, to - height};
    const bf16* x[M];
    for (int m = 0; m < M; ++m) x[m] = static_cast<const bf16*>(p.x) + begin[m] * p.x_stride;
    const bf16* const(&starts)[M] = x;
    panel_tiles<M>(tiles, height, starts, p.x_stride, reinterpret_cast<const bf16*>(p.matrix->panel(panel)),
                   p.matrix->k, fetch, sums);
    const int border = M == 2 ? from + kTileRows : to;
    deliver_tile(sums[0], p, panel, from, border, begin[0]);
    if constexpr (M == 2) deliver_tile(sums[1], p, panel, border, to, begin[1]);
}

// The table's multiply. A panel has 32 cache lines for every tile of terms: the first rows fetch the next one.
template <class Tiles>
void multiply_by_tiles(const Product& p, int panel, int first, int rows, const char* next) {
    if (p.matrix->int8) return avx512_kernels(false).multiply(p, panel, first, rows, next);
    const int height = rows < kTileRows ? rows : kTileRows, end = first + rows;
    Tiles tiles(height);
    for (int row = first; row < end; row += 2 * kTileRows) {
        const int to = end - row < 2 * kTileRows ? end : row + 2 * kTileRows;
        const Fetch fetch = row == first && next != nullptr ? Fetch{next, 32} : Fetch{nullptr, 0};
        if (to - row > kTileRows)
            tile_rows<2>(tiles, p, panel, row, to, height, fetch);
        else
            tile_rows<1>(tiles, p, panel, row, to, height, fetch);
    }
    if (p.into == Into::kGated) gate_panel<bf16>(p, panel, first, rows);
}
