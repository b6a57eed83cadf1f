// blocks_mma: blocks times dense in 16 bits on any GPU from sm_80 on: mma.sync, ldmatrix and
// cp.async instead of wgmma and TMA.
//
//   a step, 32 of k:   ask for step s + STAGES - 1 ── cp.async ──► ring of stages
//                        ── ldmatrix ──► registers ── mma.sync ──► acc
//                      wait for step s, one __syncthreads, and it is multiplied
//
// 128 threads have a tile of C: a row of blocks, whose blocks they go through, times BN columns.
// Two such share an SM: one multiplies while the other waits, or stores. A warp has up to 64 x 64
// of the tile, so that its fragments come from shared memory as fast as they are multiplied. Tiles
// go band by band: a band's columns of B stay in L2 while all rows of blocks pass.
//
// Template:  T        BF16 or F16
//            BM       rows of a block: 16, 32, 64 or 128
//            BLOCK_K  and its columns
//            B_COLS   whether B is column-major, C_COLS: whether C is
//            BN       columns of a tile
//            STAGES   of the ring
#include "blocks_mma.cuh"
#include "ldmatrix.cuh"
#include "tile_order.cuh"

template <Dtype T, int BM, int BLOCK_K, bool B_COLS, bool C_COLS, int BN, int STAGES>
__global__ void __launch_bounds__(MMA_THREADS, 2) blocks_mma(
    const int4* __restrict__ rows,  // of blocks: which, its first block, the one past its last
    const int* __restrict__ col_idx, const u16* __restrict__ val,  // Bcsr
    const u16* __restrict__ b,
    long long b_pitch,  // k x n; lines of a multiple of 8 elements, at 16 bytes
    u16* __restrict__ c, long long c_pitch,  // m x n; lines of any length
    int m, int n, int k, int high, int wide,
    int band)  // TileOrder: panels of BN columns x rows of blocks
{
    using Load = Steps<BM, BN, BLOCK_K, B_COLS>;
    constexpr int ACROSS = BM == 128 ? 2 : 4, WM = BM * ACROSS / 4,
                  WN = BN / ACROSS;  // warps side by side; a warp's part
    using Mine = Part<T, WM, WN, C_COLS>;
    static_assert(WM % 16 == 0 && WN % 16 == 0 && STAGES >= 2,
                  "a warp's part is of 16 x 16 squares, a ring of two stages at least");
    static_assert(4 * Mine::BYTES <= STAGES * Load::BYTES, "C leaves through the ring");
    extern __shared__ __align__(128) unsigned char ring[];

    int panel, place;
    TileOrder{high, wide, band}.find(blockIdx.x, panel, place);
    const int4 it = __ldg(rows + place);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n0 = panel * BN;
    const int wm = warp / ACROSS * WM, wn = warp % ACROSS * WN;
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(ring));
    Load load(col_idx, it.y, it.z, val, b, b_pitch, n0, n, k);
    const int steps = load.count();
    // What this lane gives to ldmatrix for the first 16 of k: a row of A; a column of B, or a row
    // where it is row-major.
    const unsigned of_a = chunk_of<4>(wm + lane % 16, lane / 16);
    const unsigned of_b =
        Load::B + (B_COLS ? chunk_of<4>(wn + lane / 16 * 8 + lane % 8, lane / 8 % 2)
                          : chunk_of<Load::B_CHUNKS>(lane % 16, wn / 8 + lane / 16));

    float acc[WM / 16][WN / 8][4] = {};
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < steps) load.next(base + s * Load::BYTES);
        cp_async_commit_group();
    }
    unsigned here = base,
             there = base +
                     (STAGES - 1) *
                         Load::BYTES;  // the stage that is multiplied, and the one that is filled
    const unsigned past = base + STAGES * Load::BYTES;
#pragma unroll 1
    for (int s = 0; s < steps; ++s) {
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();  // step s is there for all, and all have read step s - 1
        unsigned x[2][WM / 16][4], y[2][WN / 16][4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int i = 0; i < WM / 16; ++i)
                ldmatrix_x4(x[half][i], ((here + of_a) ^ half * 32) + i * 16 * 64);
#pragma unroll
            for (int j = 0; j < WN / 16; ++j)
                if constexpr (B_COLS)
                    ldmatrix_x4(y[half][j], ((here + of_b) ^ half * 32) + j * 16 * 64);
                else
                    ldmatrix_x4_trans(
                        y[half][j], ((here + of_b) ^ j * 32) + half * 16 * Load::B_CHUNKS * 16);
            if (half == 0) {
                if (s + STAGES - 1 < steps) load.next(there);
                cp_async_commit_group();
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int i = 0; i < WM / 16; ++i)
#pragma unroll
                for (int j = 0; j < WN / 8; ++j)
                    mma_m16n8k16<T>(acc[i][j], x[half][i],
                                    {y[half][j / 2][j % 2 * 2], y[half][j / 2][j % 2 * 2 + 1]});
        here = here + Load::BYTES == past ? base : here + Load::BYTES;
        there = there + Load::BYTES == past ? base : there + Load::BYTES;
    }
    __syncthreads();  // the ring is free
    const int row = it.x * BM + wm, column = n0 + wn;
    u16* const to = c + (C_COLS ? column * c_pitch + row : row * c_pitch + column);
    Mine::store(acc, ring + warp * Mine::BYTES, to, c_pitch, C_COLS ? n - column : m - row,
                C_COLS ? m - row : n - column);
}
