// In which order tiles of C are worked on: such that what is read at a time stays in L2.
#pragma once

// Tile number t: bands of `band` rows of tiles, in each down the rows before across. Rows and
// columns may be those of C^T.
struct TileOrder {
    int high, wide, band;  // tiles of C in a column, in a row, rows of a band
    __device__ __forceinline__ int tiles() const { return high * wide; }
    __device__ __forceinline__ void find(int t, int& row, int& column) const
    {
        const int first = t / (band * wide) * band, rows = min(band, high - first),
                  rest = t - first * wide;
        row = first + rest % rows;
        column = rest / rows;
    }
};
