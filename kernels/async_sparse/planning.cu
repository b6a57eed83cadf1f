// planning: what kernels for CSR want to know of a matrix, and the matrix as they read it, each in
// a launch or two (sm_80).
//
//   similar    a key for each row; rows sorted by it have their like beside them
//   permuted   rows in another order
//   firsts     which entries are the first of their column in a group of rows, counted (a scan)
//   grouped    groups of rows over the union of their columns, for union_rows.cu
//   sliced     for windows.cu
//   cut_rows, cut_places, cut_tasks, tasks_in_blocks, tasks_in_order
//              the tasks of rows, groups or windows
//
// Columns ascend in every row, each once, where a column is looked for in a row (firsts, grouped,
// sliced). Every kernel is a template, so that a cubin has, and the compiler makes, the one that
// was asked for.
#include "scan.cuh"
#include "searching.cuh"
#include "tasks.cuh"

// ---- rows in another order

// formats/reorder.py's key of each row: three min-hashes of its columns, 21 bits each. Eight lanes
// a row.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    similar(const int* __restrict__ row_ptr, const int* __restrict__ col_idx, int m,
            unsigned long long* __restrict__ key)
{
    constexpr unsigned long long FACTORS[3] = {
        0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9};
    constexpr int BITS = 21, LANES = 8;
    const int row = (blockIdx.x * THREADS + threadIdx.x) / LANES, lane = threadIdx.x % LANES;
    unsigned least[3] = {(1u << BITS) - 1, (1u << BITS) - 1, (1u << BITS) - 1};
    const int end = row < m ? row_ptr[row + 1] : 0;
    for (int e = row < m ? row_ptr[row] + lane : 0; e < end; e += LANES)
#pragma unroll
        for (int f = 0; f < 3; ++f) {
            unsigned long long x = (col_idx[e] + 1ull) * FACTORS[f];
            x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9ull;
            least[f] = min(least[f], (unsigned)(x >> (64 - BITS)));
        }
#pragma unroll
    for (int f = 0; f < 3; ++f)
#pragma unroll
        for (int step = LANES / 2; step; step /= 2)
            least[f] = min(least[f], __shfl_xor_sync(~0u, least[f], step));
    if (row < m && lane == 0)
        key[row] = ((unsigned long long)least[0] << BITS | least[1]) << BITS | least[2];
}

// Where rows begin in another order, which is written down as int32.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    permuted_ptr(const int* __restrict__ row_ptr, const long long* __restrict__ order, int m,
                 int* __restrict__ rows, unsigned long long* tiles, unsigned launch,
                 int* __restrict__ out)
{
    scan(m, tiles, launch, out, [&](int i) {
        const int row = (int)order[i];
        rows[i] = row;
        return (unsigned)(row_ptr[row + 1] - row_ptr[row]);
    });
}

template <int = 0>
__global__ void __launch_bounds__(THREADS)
    permuted(const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
             const float* __restrict__ val, const int* __restrict__ order,
             const int* __restrict__ to_ptr, int m, int nnz, int* __restrict__ to_idx,
             float* __restrict__ to_val)
{
    const int e = blockIdx.x * THREADS + threadIdx.x;
    if (e >= nnz) return;
    const int row = owner(to_ptr, 0, m, e), from = row_ptr[order[row]] + (e - to_ptr[row]);
    to_idx[e] = col_idx[from], to_val[e] = val[from];
}

// ---- groups

// out[e]: entries before e that are the first of their column in their group of `rows` rows.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    firsts(const int* __restrict__ row_ptr, const int* __restrict__ col_idx, int m, int nnz,
           int rows, unsigned long long* tiles, unsigned launch, int* __restrict__ out)
{
    int row = -1;
    scan(nnz, tiles, launch, out, [&](int e) {
        if (row < 0 || e >= __ldg(row_ptr + row + 1)) row = owner(row_ptr, max(row, 0), m, e);
        const int column = __ldg(col_idx + e);
        for (int r = row / rows * rows; r < row; ++r) {
            const int end = __ldg(row_ptr + r + 1),
                      at = lower(col_idx, __ldg(row_ptr + r), end, column);
            if (at < end && __ldg(col_idx + at) == column) return 0u;
        }
        return 1u;
    });
}

// Where groups begin, each padded to a multiple of `pad` columns.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    group_ptr(const int* __restrict__ row_ptr, const int* __restrict__ first, int m, int rows,
              int pad, int* end, unsigned long long* tiles, unsigned launch,
              int* __restrict__ out)  // end: memory of the host
{
    const int groups = (m + rows - 1) / rows;
    scan(groups, tiles, launch, out, [&](int g) {
        const int count = first[row_ptr[min(m, (g + 1) * rows)]] - first[row_ptr[g * rows]];
        return (unsigned)((count + pad - 1) / pad * pad);
    });
    if ((groups - 1) / TILE == blockIdx.x && threadIdx.x == (groups - 1) % TILE / EACH)
        *end = out[groups];
}

// val: (columns, rows), zeros before.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    grouped(const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
            const float* __restrict__ val, const int* __restrict__ first,
            const int* __restrict__ groups, int m, int nnz, int rows, int* __restrict__ to_idx,
            float* __restrict__ to_val)
{
    const int e = blockIdx.x * THREADS + threadIdx.x;
    if (e >= nnz) return;
    const int row = owner(row_ptr, 0, m, e), column = __ldg(col_idx + e);
    const int at = groups[row / rows] + place(row_ptr, col_idx, first, m, rows, row, column);
    if (first[e + 1] != first[e]) to_idx[at] = column;
    to_val[(size_t)at * rows + row % rows] = val[e];
}

__device__ __forceinline__ float tf32(float x)
{
    return isnan(x) ? x : __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xFFFFE000u);
}

// Windows for windows.cu: (columns / 8, parts, rows, 2, 4), zeros before, as planning.sliced says;
// parts 2: TF32 and what is left. In 16 bits (columns / 16, 1, rows, 2, 8).
template <class E>
__global__ void __launch_bounds__(THREADS)
    sliced(const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
           const E* __restrict__ val, const int* __restrict__ first, const int* __restrict__ groups,
           int m, int nnz, int rows, int parts, int* __restrict__ to_idx, E* __restrict__ to_val)
{
    constexpr int HALF = 16 / sizeof(E);  // of a line of 32 bytes
    const int e = blockIdx.x * THREADS + threadIdx.x;
    if (e >= nnz) return;
    const int row = owner(row_ptr, 0, m, e), column = __ldg(col_idx + e), inside = row % rows;
    const int at = groups[row / rows] + place(row_ptr, col_idx, first, m, rows, row, column);
    if (first[e + 1] != first[e]) to_idx[at] = column;
    const int half = at / HALF % 2 ^ inside / 4 % 2;
    E* to = to_val + ((size_t)(at / (2 * HALF)) * parts * rows + inside) * (2 * HALF) +
            half * HALF + at % HALF;
    const E x = val[e];
    if (parts == 1) {
        *to = x;
        return;
    }
    if constexpr (sizeof(E) == 4) {
        const float big = tf32(x);
        to[0] = big;
        to[(size_t)rows * 8] = isfinite(big) ? tf32(x - big) : 0.f;
    }
}

// ---- tasks (planning.py): of rows, groups or windows, all of which are called rows here

struct Counts {
    unsigned long long parts;      // tasks of all rows
    unsigned long long cut_parts;  // … of rows that have several
    unsigned long long room;       // places of these (room_of)
    unsigned cuts, ended;          // rows that have several; blocks that are done
    int columns, chunk;            // of all rows; of a task at most
};

// Columns of a task at most; below 0: so many times what rows have on average, in whole steps of
// 32.
__device__ __forceinline__ int chunk_of(int chunk, int columns, int m)
{
    if (chunk >= 0) return chunk;
    const long long step = 32ll * m, steps = (-(long long)chunk * columns + step - 1) / step;
    return (int)max(1ll, steps) * 32;
}

template <int = 0>
__global__ void __launch_bounds__(THREADS)
    count_tasks(const int* __restrict__ row_ptr, int m, int chunk, int block, Counts* sums,
                Counts* found)
{
    __shared__ Counts local;
    if (threadIdx.x == 0) local = {};
    __syncthreads();
    const int columns = row_ptr[m];
    chunk = chunk_of(chunk, columns, m);
    unsigned long long parts = 0, cut_parts = 0, room = 0;
    unsigned cuts = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < m; i += gridDim.x * THREADS) {
        const long long some = parts_of(row_ptr[i + 1] - row_ptr[i], chunk);
        parts += some;
        if (some > 1) ++cuts, cut_parts += some, room += room_of(some, block);
    }
    if (parts) atomicAdd(&local.parts, parts);
    if (cuts)
        atomicAdd(&local.cut_parts, cut_parts), atomicAdd(&local.room, room),
            atomicAdd(&local.cuts, cuts);
    __syncthreads();
    if (threadIdx.x) return;
    atomicAdd(&sums->parts, local.parts);
    if (local.cuts)
        atomicAdd(&sums->cut_parts, local.cut_parts), atomicAdd(&sums->room, local.room),
            atomicAdd(&sums->cuts, local.cuts);
    __threadfence();
    if (atomicAdd(&sums->ended, 1u) + 1 < gridDim.x) return;
    __threadfence();
    volatile Counts* from = sums;
    found->parts = from->parts, found->cut_parts = from->cut_parts, found->room = from->room,
    found->cuts = from->cuts;
    found->columns = columns, found->chunk = chunk;
    __threadfence_system();
    from->parts = from->cut_parts = from->room = 0;
    from->cuts = from->ended = 0;
}

// rank[i]: rows before i that have several tasks; cut[j]: the j-th of these.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    cut_rows(const int* __restrict__ row_ptr, int m, int chunk, int* __restrict__ cut,
             unsigned long long* tiles, unsigned launch, int* __restrict__ rank)
{
    scan(
        m, tiles, launch, rank,
        [&](int i) { return parts_of(row_ptr[i + 1] - row_ptr[i], chunk) > 1 ? 1u : 0u; },
        [&](int i, int before, unsigned is_cut) {
            if (is_cut) cut[before] = i;
        });
}

// at[i]: tasks of rows before i.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    task_ranks(const int* __restrict__ row_ptr, int m, int chunk, unsigned long long* tiles,
               unsigned launch, int* __restrict__ at)
{
    scan(m, tiles, launch, at,
         [&](int i) { return (unsigned)parts_of(row_ptr[i + 1] - row_ptr[i], chunk); });
}

// Systems of cut rows, the largest first (32 kinds of them), so that a small one lies in one block
// and a large one begins with one. begin[j]: where the system of cut row j begins; free[j]: places
// that are left over in the systems before it. One block of 1024.
template <int = 0>
__global__ void __launch_bounds__(1024)
    cut_places(const int* __restrict__ row_ptr, const int* __restrict__ cut, int cuts, int chunk,
               int block, int* __restrict__ begin, int* __restrict__ free)
{
    __shared__ int base[32], of_warp[32][32], left_of[33];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (warp == 0) base[lane] = 0;
    if (threadIdx.x == 0) left_of[32] = 0;
    __syncthreads();
    for (int j = threadIdx.x; j < cuts; j += 1024) {
        const int length = row_ptr[cut[j] + 1] - row_ptr[cut[j]];
        const int room = (int)room_of(parts_of(length, chunk), block);
        atomicAdd(base + (32 - __clz(room - 1)), room);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        for (int kind = 31, sum = 0; kind >= 0; --kind) {
            const int size = base[kind];
            base[kind] = sum, sum += size;
        }
    __syncthreads();
    for (int from = 0; from < cuts; from += 1024) {
        const int j = from + threadIdx.x;
        int room = 0, left = 0, kind = -1;
        if (j < cuts) {
            const int parts = (int)parts_of(row_ptr[cut[j] + 1] - row_ptr[cut[j]], chunk);
            room = (int)room_of(parts, block), left = room - parts, kind = 32 - __clz(room - 1);
        }
        of_warp[warp][lane] = 0;
        __syncwarp();
        int mine = 0, spare = 0;
        for (int l = 0; l < 32; ++l) {
            const int other = __shfl_sync(~0u, room, l), of = __shfl_sync(~0u, kind, l),
                      rest = __shfl_sync(~0u, left, l);
            if (l < lane && of == kind) mine += other;
            if (l < lane) spare += rest;
        }
        if (kind >= 0) atomicAdd(&of_warp[warp][kind], room);
        if (lane == 31) left_of[warp] = spare + left;
        __syncthreads();
        if (warp == 0) {  // sums of the warps before, and of all rounds before
            int sum = base[lane];
            for (int w = 0; w < 32; ++w) {
                const int size = of_warp[w][lane];
                of_warp[w][lane] = sum, sum += size;
            }
            base[lane] = sum;
            if (lane == 0) {
                int rest = left_of[32];
                for (int w = 0; w < 32; ++w) {
                    const int size = left_of[w];
                    left_of[w] = rest, rest += size;
                }
                left_of[32] = rest;
            }
        }
        __syncthreads();
        if (j < cuts) begin[j] = of_warp[warp][kind] + mine, free[j] = left_of[warp] + spare;
        __syncthreads();
    }
    if (threadIdx.x == 0) free[cuts] = left_of[32];
}

// The parts of cut rows: one block each. at: where the parts of row cut[j] begin in the table,
// indexed by j, or, by_row, by the row.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    cut_tasks(const int* __restrict__ row_ptr, const int* __restrict__ cut,
              const int* __restrict__ at, int by_row, int chunk, int4* __restrict__ table,
              int* __restrict__ others)
{
    const int j = blockIdx.x, row = cut[j], begin = row_ptr[row], end = row_ptr[row + 1];
    const int parts = (int)parts_of(end - begin, chunk), size = even_part(end - begin, parts);
    for (int p = threadIdx.x; p < parts; p += THREADS)
        table[at[by_row ? row : j] + p] =
            make_int4(row, begin + p * size, min(begin + (p + 1) * size, end), j);
    if (threadIdx.x == 0 && others) others[j] = parts - 1;
}

// Whole rows where systems of cut ones are not filled, and behind them; where there are too few,
// tasks of no row, `m`, and no column.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    tasks_in_blocks(const int* __restrict__ row_ptr, int m, const int* __restrict__ rank, int cuts,
                    int room, int chunk, const int* __restrict__ cut, const int* __restrict__ begin,
                    const int* __restrict__ free, int4* __restrict__ table)
{
    const int i = blockIdx.x * THREADS + threadIdx.x, spare = cuts ? free[cuts] : 0;
    if (i >= m && i - m >= spare - (m - cuts)) return;
    if (i < m && cuts && rank[i + 1] != rank[i]) return;
    const int whole = i < m ? i - (cuts ? rank[i] : 0) : i - cuts;
    int to = room + whole - spare;
    if (whole < spare) {
        int low = 0, high = cuts;  // the last system before which so many or fewer places are free
        while (low + 1 < high) {
            const int middle = low + (high - low) / 2;
            if (free[middle] <= whole) low = middle;
            else high = middle;
        }
        const int length = row_ptr[cut[low] + 1] - row_ptr[cut[low]];
        to = begin[low] + (int)parts_of(length, chunk) + whole - free[low];
    }
    table[to] = i < m ? make_int4(i, row_ptr[i], row_ptr[i + 1], -1) : make_int4(m, 0, 0, -1);
}

// Whole rows in their order; at: `task_ranks`.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    tasks_in_order(const int* __restrict__ row_ptr, int m, const int* __restrict__ at,
                   int4* __restrict__ table)
{
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < m && at[i + 1] == at[i] + 1)
        table[at[i]] = make_int4(i, row_ptr[i], row_ptr[i + 1], -1);
}

// Keys by which tasks sort, the longest first, and as they lie where they are as long; and tasks in
// that order.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    task_keys(const int4* __restrict__ table, int tasks, unsigned long long* __restrict__ key)
{
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < tasks) key[i] = (unsigned long long)(0x7FFFFFFF - (table[i].z - table[i].y)) << 32 | i;
}

template <int = 0>
__global__ void __launch_bounds__(THREADS)
    tasks_by_keys(const int4* __restrict__ table, int tasks,
                  const unsigned long long* __restrict__ key, int4* __restrict__ to)
{
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < tasks) to[i] = table[(unsigned)key[i]];
}

// ---- values

// flags[0]: some value is infinite or is rounded to that, flags[1]: TF32 does not hold some value.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    values(const float* __restrict__ val, long long size, unsigned infinite, int* flags)
{
    bool large = false, longer = false;
    for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < size;
         i += gridDim.x * (long long)THREADS) {
        const unsigned bits = __float_as_uint(val[i]), magnitude = bits & 0x7FFFFFFFu;
        large |= magnitude >= infinite && magnitude <= 0x7F800000u;
        longer |= (bits & 0x1FFFu) != 0;
    }
    if (__syncthreads_or(large) && threadIdx.x == 0) atomicOr(flags, 1);
    if (__syncthreads_or(longer) && threadIdx.x == 0) atomicOr(flags + 1, 1);
}

template <int = 0>
__global__ void __launch_bounds__(THREADS)
    rounded(const float* __restrict__ val, long long size, float* __restrict__ to)
{
    for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < size;
         i += gridDim.x * (long long)THREADS)
        to[i] = tf32(val[i]);
}
