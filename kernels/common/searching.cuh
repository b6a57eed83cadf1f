// Looking for rows and columns in CSR's arrays.
#pragma once

// The first place from `from` to `to` that holds x or more.
__device__ __forceinline__ int lower(const int* __restrict__ at, int from, int to, int x)
{
    while (from < to) {
        const int middle = from + (to - from) / 2;
        if (__ldg(at + middle) < x) from = middle + 1;
        else to = middle;
    }
    return from;
}

// The row that owns an entry, not before row `from`: the last one that begins at it or before.
__device__ __forceinline__ int owner(const int* __restrict__ row_ptr, int from, int m, int entry)
{
    int to = m;
    while (from + 1 < to) {
        const int middle = from + (to - from) / 2;
        if (__ldg(row_ptr + middle) <= entry) from = middle;
        else to = middle;
    }
    return from;
}

// The place among its group's columns of a column, which some row of the group has: firsts of
// smaller columns, row by row.
__device__ __forceinline__ int
place(const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
      const int* __restrict__ first, int m, int rows, int row, int column)
{
    int before = 0;
    const int end = min(m, (row / rows + 1) * rows);
    for (int r = row / rows * rows; r < end; ++r) {
        const int begin = __ldg(row_ptr + r);
        before += __ldg(first + lower(col_idx, begin, __ldg(row_ptr + r + 1), column)) -
                  __ldg(first + begin);
    }
    return before;
}
