// intake: one look at a CSR matrix as it comes in, before any kernel reads through its indices.
//
//   row_ptr  0   2   2   5   6      starts at 0, never falls, ends at nnz  of 32 or 64 bits;
//   col_idx  1   4   0   2   3   1  each from 0 to k - 1                   64 are kept as 32
//
// The same pass finds the longest row, whether columns ascend in every row, and a fingerprint of
// where entries are. Blocks add to `sums`, which are 0 between launches: the last one to end hands
// them to the host and clears them.
//
// That columns ascend shows without asking which row an entry belongs to: a column that is not
// larger than the one before it must be the first of a row, so there are as many of these as rows
// that begin with one.
//
// Template:  Row, Col   types of row_ptr and of col_idx: int or long long
struct Facts {
    unsigned long long row,
        entry;                 // 2^63 - the first place where row_ptr, col_idx is wrong; 0: none is
    unsigned long long print;  // fingerprint
    // The longest row; columns not above the one before; those of them that begin a row.
    unsigned longest, falls, starts;
    unsigned ended;  // blocks that are done
};

constexpr int THREADS = 256;
constexpr unsigned long long FIRST = 1ull << 63, COLUMN = 0x9E3779B97F4A7C15,
                             PLACE = 0xC2B2AE3D27D4EB4F;

__device__ __forceinline__ unsigned long long mixed(unsigned long long x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}

template <class T>
__device__ __forceinline__ T warp_sum(T x)
{
#pragma unroll
    for (int lane = 16; lane; lane /= 2) x += __shfl_down_sync(~0u, x, lane);
    return x;
}

template <class T>
__device__ __forceinline__ T warp_most(T x)
{
#pragma unroll
    for (int lane = 16; lane; lane /= 2) x = max(x, __shfl_down_sync(~0u, x, lane));
    return x;
}

// Each number to its sum or maximum; atomics of 0 would only wait for each other.
__device__ __forceinline__ void add(Facts* to, const Facts& x)
{
    if (x.row) atomicMax(&to->row, x.row);
    if (x.entry) atomicMax(&to->entry, x.entry);
    if (x.print) atomicAdd(&to->print, x.print);
    if (x.longest) atomicMax(&to->longest, x.longest);
    if (x.falls) atomicAdd(&to->falls, x.falls);
    if (x.starts) atomicAdd(&to->starts, x.starts);
}

template <class Row, class Col>
__global__ void __launch_bounds__(THREADS, 4)
    look(const Row* __restrict__ row_ptr, const Col* __restrict__ col_idx, long long m, long long k,
         long long nnz, int prints, int* __restrict__ rows,
         int* __restrict__ columns,  // int32 copies, or null
         Facts* sums, Facts* found)  // found: memory of the host
{
    const long long me = blockIdx.x * (long long)THREADS + threadIdx.x,
                    all = gridDim.x * (long long)THREADS;
    Facts mine = {};
    for (long long e = me; e < nnz; e += all) {
        const long long c = col_idx[e];
        if (c < 0 || c >= k) mine.entry = max(mine.entry, FIRST - e);
        if (e && col_idx[e - 1] >= c) ++mine.falls;
        if (columns) columns[e] = (int)c;
        if (prints) mine.print += mixed((unsigned long long)(c + 1) * COLUMN ^ e * PLACE);
    }
    for (long long r = me; r <= m; r += all) {
        const long long begin = row_ptr[r];
        if (rows) rows[r] = (int)begin;
        if (prints) mine.print += 3 * mixed((unsigned long long)(begin + 1) * PLACE ^ r * COLUMN);
        const long long length = r < m ? row_ptr[r + 1] - begin : 0;
        if (length < 0 || r == 0 && begin != 0 || r == m && begin != nnz)
            mine.row = max(mine.row, FIRST - r);
        if (length > 0 && begin > 0 && begin < nnz && col_idx[begin - 1] >= col_idx[begin])
            ++mine.starts;
        mine.longest = max(mine.longest, (unsigned)max(0ll, min(length, 0xFFFFFFFFll)));
    }

    __shared__ Facts block;
    if (threadIdx.x == 0) block = {};
    __syncthreads();
    mine.row = warp_most(mine.row), mine.entry = warp_most(mine.entry),
    mine.longest = warp_most(mine.longest);
    mine.print = warp_sum(mine.print), mine.falls = warp_sum(mine.falls),
    mine.starts = warp_sum(mine.starts);
    if (threadIdx.x % 32 == 0) add(&block, mine);
    __syncthreads();
    if (threadIdx.x) return;
    add(sums, block);
    __threadfence();
    if (atomicAdd(&sums->ended, 1u) + 1 < gridDim.x) return;
    __threadfence();
    volatile Facts* from = sums;
    found->row = from->row, found->entry = from->entry, found->print = from->print;
    found->longest = from->longest, found->falls = from->falls, found->starts = from->starts;
    __threadfence_system();
    from->row = from->entry = from->print = 0;
    from->longest = from->falls = from->starts = from->ended = 0;
}

// ---- a sample of what rows share

constexpr int SLOTS = 2048, WINDOW = 64, HEIGHTS = 7;

struct Shared {                           // of the windows that were looked at
    unsigned long long columns[HEIGHTS];  // that groups of 1, 2, 4, … 64 rows have
    unsigned ended, unused;
};

__device__ __forceinline__ unsigned hashed(unsigned x)
{
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    return x ^ x >> 16;
}

// One window of 64 rows a block, from all over the matrix. A table has for each column the rows
// that hold it, a bit each; of windows with more entries every second, fourth, … column is looked
// at. Nothing is read outside of the arrays, whatever they hold.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    sample(const int* __restrict__ row_ptr, const int* __restrict__ col_idx, int m, int nnz,
           Shared* sums, Shared* found)
{
    __shared__ int keys[SLOTS];
    __shared__ unsigned long long rows[SLOTS];
    __shared__ int start[WINDOW], past[WINDOW + 1];
    __shared__ unsigned long long local[HEIGHTS];
    const int windows = (m + WINDOW - 1) / WINDOW;
    const int first = (int)((long long)blockIdx.x * windows / gridDim.x) * WINDOW;
    for (int i = threadIdx.x; i < SLOTS; i += THREADS) keys[i] = -1, rows[i] = 0;
    if (threadIdx.x < HEIGHTS) local[threadIdx.x] = 0;
    if (threadIdx.x < WINDOW) {
        const int r = min(first + (int)threadIdx.x, m - 1);
        const int begin = min(max(__ldg(row_ptr + r), 0), nnz),
                  end = min(max(__ldg(row_ptr + r + 1), begin), nnz);
        start[threadIdx.x] = begin;
        past[threadIdx.x + 1] = first + (int)threadIdx.x < m ? end - begin : 0;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        past[0] = 0;
        for (int i = 0; i < WINDOW; ++i) past[i + 1] += past[i];
    }
    __syncthreads();
    const int entries = past[WINDOW];
    unsigned every = 1;
    while (entries / every > SLOTS / 2) every *= 2;
    for (int i = threadIdx.x; i < entries; i += THREADS) {
        int row = 0;
#pragma unroll
        for (int step = WINDOW / 2; step; step /= 2)
            if (past[row + step] <= i) row += step;
        const int column = __ldg(col_idx + start[row] + (i - past[row]));
        const unsigned hash = hashed((unsigned)column);
        if (hash & (every - 1)) continue;
        int slot = hash / every % SLOTS;
        for (int tries = 0; tries < SLOTS; ++tries, slot = (slot + 1) % SLOTS) {
            const int had = atomicCAS(keys + slot, -1, column);
            if (had != -1 && had != column) continue;
            atomicOr(rows + slot, 1ull << row);
            break;
        }
    }
    __syncthreads();
    unsigned count[HEIGHTS] = {};
    for (int i = threadIdx.x; i < SLOTS; i += THREADS) {
        unsigned long long x = rows[i];
        constexpr unsigned long long keep[HEIGHTS] = {
            ~0ull,
            0x5555555555555555,
            0x1111111111111111,
            0x0101010101010101,
            0x0001000100010001,
            0x0000000100000001,
            1};
#pragma unroll
        for (int h = 0; h < HEIGHTS; ++h) {
            if (h) x = (x | x >> (1 << (h - 1))) & keep[h];
            count[h] += __popcll(x);
        }
    }
#pragma unroll
    for (int h = 0; h < HEIGHTS; ++h)
        if (count[h]) atomicAdd(local + h, (unsigned long long)count[h] * every);
    __syncthreads();
    if (threadIdx.x < HEIGHTS && local[threadIdx.x])
        atomicAdd(sums->columns + threadIdx.x, local[threadIdx.x]);
    __threadfence();
    __syncthreads();
    if (threadIdx.x) return;
    if (atomicAdd(&sums->ended, 1u) + 1 < gridDim.x) return;
    __threadfence();
    volatile Shared* from = sums;
    for (int h = 0; h < HEIGHTS; ++h) found->columns[h] = from->columns[h];
    __threadfence_system();
    for (int h = 0; h < HEIGHTS; ++h) from->columns[h] = 0;
    from->ended = 0;
}
