// Checks of a sparse format's index arrays, and of what must be 0 in its values, in one pass each.
//
// found[kind] is the first place of a fault of that kind; before the launch every byte of it is
// 0xff, "none". Nothing is read through a pointer or an index that was not looked at first.
// Which fault it is, the host says, which looks for itself (arrays.py).
//
// Template:  P, I  type of pointers and of indices: int or long long
//            Bits  a stored value as it lies: unsigned (float32) or u16

using i64 = long long;
using u64 = unsigned long long;
using u16 = unsigned short;

__device__ void report(u64* found, int kind, i64 place) { atomicMin(found + kind, (u64)place); }
__device__ i64 first_thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ i64 all_threads() { return (i64)gridDim.x * blockDim.x; }
// Whether stored bits are not 0, of either sign.
__device__ bool nonzero(unsigned bits) { return bits & 0x7fffffffu; }
__device__ bool nonzero(u16 bits) { return bits & 0x7fffu; }

// A compressed format's pointers, rows + 1 of them, and its indices, which count from 0 to within -
// 1.
enum { STARTS, FALLS, ENDS, OUTSIDE };
template <typename P, typename I>
__global__ void
compressed(const P* pointer, i64 rows, const I* index, i64 entries, i64 within, u64* found)
{
    if (first_thread() == 0 && pointer[0] != 0) report(found, STARTS, 0);
    if (first_thread() == 0 && (i64)pointer[rows] > entries) report(found, ENDS, rows);
    for (i64 i = first_thread(); i < rows; i += all_threads())
        if (pointer[i + 1] < pointer[i]) report(found, FALLS, i);
    for (i64 i = first_thread(); i < entries; i += all_threads())
        if (index[i] < 0 || (i64)index[i] >= within) report(found, OUTSIDE, i);
}

template <typename I>
__global__ void within(const I* index, i64 entries, i64 past, u64* found)
{
    for (i64 i = first_thread(); i < entries; i += all_threads())
        if (index[i] < 0 || (i64)index[i] >= past) report(found, 0, i);
}

// The only pointer of a matrix without rows.
__device__ void lone(const int* pointer, i64 entries, u64* found)
{
    if (pointer[0] != 0) report(found, STARTS, 0);
    if (pointer[0] != entries) report(found, ENDS, 0);
}
// The entries of a row that its pointers name, [begin, end); empty where they are wrong, which is
// reported.
__device__ void bounds(const int* pointer, i64 row, i64 rows, i64 entries, u64* found, i64& begin,
                       i64& end)
{
    begin = pointer[row], end = pointer[row + 1];
    if (row == 0 && begin != 0) report(found, STARTS, 0);
    if (end < begin) report(found, FALLS, row);
    if (row == rows - 1 && end != entries) report(found, ENDS, rows);
    if (begin < 0 || end > entries) end = begin;
}

// Blocks of `high` x `wide` values of Bits, ascending in each row of blocks; beyond m and k they
// are 0.
enum { ASCENDS = OUTSIDE + 1, BELOW, BEYOND };
template <typename Bits>
__global__ void bcsr(const int* row_ptr, const int* col_idx, const Bits* val, i64 blocks, i64 m,
                     i64 k, int high, int wide, u64* found)
{
    const i64 rows = (m + high - 1) / high, columns = (k + wide - 1) / wide,
              area = (i64)high * wide;
    const int left = m % high, narrow = k % wide, lane = threadIdx.x % 32;
    if (rows == 0 && first_thread() == 0) lone(row_ptr, blocks, found);
    for (i64 row = first_thread() / 32; row < rows; row += all_threads() / 32) {
        i64 begin, end;
        bounds(row_ptr, row, rows, blocks, found, begin, end);
        for (i64 i = begin + lane; i < end; i += 32) {
            if (col_idx[i] < 0 || col_idx[i] >= columns) report(found, OUTSIDE, i);
            if (i > begin && col_idx[i] <= col_idx[i - 1]) report(found, ASCENDS, i - 1);
        }
        // The block at the right edge is the last one of its row, or the row does not ascend.
        if (narrow && begin < end && col_idx[end - 1] == columns - 1)
            for (i64 j = lane; j < (i64)high * (wide - narrow); j += 32) {
                const i64 at = j / (wide - narrow) * wide + narrow + j % (wide - narrow);
                if (nonzero(val[(end - 1) * area + at])) report(found, BEYOND, end - 1);
            }
    }
    if (!left) return;
    const i64 begin = row_ptr[rows - 1], end = row_ptr[rows], each = (i64)(high - left) * wide;
    if (begin < 0 || end > blocks) return;
    for (i64 j = first_thread(); j < (end - begin) * each; j += all_threads()) {
        const i64 block = begin + j / each;
        if (nonzero(val[block * area + (i64)left * wide + j % each])) report(found, BELOW, block);
    }
}

// Windows of rows whose columns ascend, then padding, -1, whose values are 0, as those of rows from
// m on.
enum { RAGGED = ENDS + 1, NOWHERE, RISES, PADDING, UNDER };
template <typename Bits>
__global__ void wcsr(const int* row_ptr, const int* col_idx, const Bits* val, i64 columns, i64 m,
                     i64 k, int window, int pad, u64* found)
{
    const i64 windows = (m + window - 1) / window;
    const int left = m % window, lane = threadIdx.x % 32;
    if (windows == 0 && first_thread() == 0) lone(row_ptr, columns, found);
    for (i64 row = first_thread() / 32; row < windows; row += all_threads() / 32) {
        i64 begin, end;
        bounds(row_ptr, row, windows, columns, found, begin, end);
        if (row_ptr[row] % pad) report(found, RAGGED, row);
        if (row_ptr[row + 1] % pad) report(found, RAGGED, row + 1);
        for (i64 i = begin + lane; i < end; i += 32) {
            const int column = col_idx[i];
            if (column < -1 || column >= k) report(found, NOWHERE, i);
            if (i > begin) {  // padding counts as column k, which it may repeat
                const i64 before = col_idx[i - 1] < 0 ? k : col_idx[i - 1],
                          now = column < 0 ? k : column;
                if (now < before || (now == before && column >= 0)) report(found, RISES, i - 1);
            }
            if (column < 0)
                for (int r = 0; r < window; ++r)
                    if (nonzero(val[r * columns + i])) report(found, PADDING, i);
        }
    }
    if (!left) return;
    const i64 begin = row_ptr[windows - 1], wide = columns - begin;
    if (begin < 0) return;
    for (i64 j = first_thread(); j < wide * (window - left); j += all_threads())
        if (nonzero(val[(left + j / wide) * columns + begin + j % wide])) report(found, UNDER, j);
}

// 2:4: four pairs of indices in each of `width` numbers of a row; columns from k on hold no value.
enum { PAIR, FILLED };
__global__ void two_four(const u16* meta, const u16* val, i64 m, i64 k, unsigned pairs, u64* found)
{
    const i64 width = (k + 15) / 16;
    for (i64 i = first_thread(); i < m * width; i += all_threads()) {
        const bool last = i % width == width - 1;
        for (int group = 0; group < 4; ++group) {
            const unsigned pair = meta[i] >> 4 * group & 15;
            if (!(pairs >> pair & 1)) report(found, PAIR, 4 * i + group);
            for (int j = 0; last && j < 2; ++j) {
                const i64 column = 4 * group + (pair >> 2 * j & 3);
                if (16 * (width - 1) + column >= k && nonzero(val[8 * i + 2 * group + j]))
                    report(found, FILLED, 16 * (i / width) + column);
            }
        }
    }
}

// N:M: `keep` rows of each group of rows, ascending, for each of q vectors; what no row is left for
// repeats the last.
enum { GROUP, CLIMBS, SURPLUS, STORED };
__global__ void nm(const int* index, const unsigned* val, i64 k, i64 n, i64 keep, i64 group, i64 w,
                   i64 q, i64 surplus, u64* found)
{
    for (i64 i = first_thread(); i < w * q; i += all_threads()) {
        const i64 row = i / q, low = row / keep * group, high = low + group < k ? low + group : k;
        if (index[i] < low || index[i] >= high) report(found, GROUP, i);
        if (row + 1 < w - surplus && index[i + q] <= index[i]) report(found, CLIMBS, i);
        if (row >= w - surplus && index[i] != k - 1) report(found, SURPLUS, i);
    }
    for (i64 j = first_thread(); j < surplus * n; j += all_threads())
        if (nonzero(val[(w - surplus) * n + j])) report(found, STORED, (w - surplus) * n + j);
}
