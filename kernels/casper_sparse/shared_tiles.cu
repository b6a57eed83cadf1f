// shared_tiles: a tile of B waits in shared memory, and the rows of A come to it.
//
//   C (m x n) = A (m x k, CSR cut by columns) . B (k x n), float32, B and C row-major, 4 divides n.
//
//          32 columns            A, cut into column tiles of k_tile beforehand, longest rows first:
//      ┌──────────────┐            ptr[t * m_pad + p] ... [+ 1]   row at position p within tile t
//   B  │ tile 0       │ k_tile     pair[i] = { byte offset of B's row within its tile, value }
//      │ tile 1       │ rows       order[p] = row of C at position p
//      └──────────────┘          for each tile:  stage it  ·  barrier  ·  all rows of the block
//
// A gather through L2 moves 4 bytes for every 2 FLOP. Here a block fetches each tile once for all
// of its THREADS / 8 * ROWS rows, and the gather happens in shared memory: eight lanes read one
// 128-byte row of the tile, all 32 banks once, whichever row it is. The sums stay in registers over
// all tiles. Eight non-zeros at a time pass through shared memory too, as in the published kernel,
// but as (offset, value) pairs, two to a 16-byte load.
//
// Template:  THREADS  of a block
//            ROWS     rows of C that a group of eight lanes keeps in registers (4 * ROWS sums a
//                     lane)
//            UNROLL   non-zeros whose loads are issued together: 2, 4 or 8
#include "cp_async.cuh"
#include "vec.cuh"

template <int THREADS, int ROWS, int UNROLL>
__global__ void __launch_bounds__(THREADS, 1)
    shared_tiles(int m, int m_pad,          // rows; rows rounded up to whole blocks
                 int n, int k, int k_tile,  // (tiles + 1) * m_pad and tiles * k_tile below 2^31
                 const int* __restrict__ order,  // m
                 const int* __restrict__ ptr,    // tiles * m_pad + 1
                 const int2* __restrict__ pair,  // nnz
                 const float* __restrict__ B, float* __restrict__ C)
{
    static_assert(8 % ROWS == 0 && 8 % UNROLL == 0 && UNROLL >= 2, "groups of eight, pairs of two");
    constexpr int ROW_BYTES = 128, BLOCK_ROWS = THREADS / 8 * ROWS;
    extern __shared__ __align__(16) char tile[];  // (k_tile + 1) x 32 float32, row 0 zero
    __shared__ __align__(16) int2 staged[THREADS];

    const int lane = threadIdx.x % 8, group = threadIdx.x / 8;
    const int row_blocks = m_pad / BLOCK_ROWS;
    const int col = blockIdx.x / row_blocks * 32 + lane * 4;
    const int first = blockIdx.x % row_blocks * BLOCK_ROWS + group * ROWS;
    const char* mine = tile + lane * 16;
    const int4* chunk = reinterpret_cast<const int4*>(staged + group * 8);
    // What stands behind a row's end points at the row of zeros: 0 * 0, never 0 * infinity.
    const int2 nothing = make_int2(0, 0);
    if (group == 0) *reinterpret_cast<float4*>(tile + lane * 16) = float4{};

    vec<4> acc[ROWS] = {};
    for (int begin = 0, at_tile = first; begin < k; begin += k_tile, at_tile += m_pad) {
        __syncthreads();  // the tile before has been read by all
        if (col < n)
            for (int i = group; i < min(k_tile, k - begin); i += THREADS / 8)
                cp_async_16(
                    tile + (i + 1) * ROW_BYTES + lane * 16, B + (size_t)(begin + i) * n + col);
        cp_async_wait_all();
        __syncthreads();

#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int at = ptr[at_tile + r], length = ptr[at_tile + r + 1] - at;
            // Every lane of the warp makes the same steps, up to the longest of its four rows.
            const int longest = __reduce_max_sync(~0u, length);
            int2 next = lane < length ? __ldg(pair + at + lane) : nothing;
            for (int i = 0; i < longest; i += 8) {
                __syncwarp();  // the eight before have been read
                staged[threadIdx.x] = next;
                __syncwarp();
                next = i + 8 + lane < length ? __ldg(pair + at + i + 8 + lane) : nothing;
                for (int j = 0; j < 8 && i + j < longest; j += UNROLL)
#pragma unroll
                    for (int u = 0; u < UNROLL; u += 2) {
                        const int4 two = chunk[(j + u) / 2];
                        fma(acc[r], __int_as_float(two.y), load_shared(mine + two.x));
                        fma(acc[r], __int_as_float(two.w), load_shared(mine + two.z));
                    }
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
        if (first + r < m && col < n)
            *reinterpret_cast<vec<4>*>(C + (size_t)order[first + r] * n + col) = acc[r];
}
