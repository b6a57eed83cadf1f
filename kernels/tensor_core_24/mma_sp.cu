// mma_sp: the published kernel, 2:4 sparse times dense on the tensor cores of Ampere and later
// ("Implementing a 2:4 Sparse GEMM Kernel with Tensor Cores", section "Implementation Details"),
// and its family.
//
//   C (m x n) = alpha A (m x k, 2:4 sparse along k) . B (k x n) + beta C_in + bias,
//   16-bit, row-major, float32 sums
//
//     128 x 128 of C a block, 64 x 64 a warp    step, 64 columns of A     0      1      2      3
//          ┌────────┬────────┐                  cp.async, three stages    2      3      4      5
//          │ warp 0 │ warp 1 │                  ldmatrix, a part ahead   0b 1a  1b 2a  2b 3a  3b 4a
//          ├────────┼────────┤                  mma.sp, 32 each part     0a 0b  1a 1b  2a 2b  3a 3b
//          │ warp 2 │ warp 3 │                  steps 0 and 1 are copied, and 0a is loaded, before
//          └────────┴────────┘                  the loop; a and b are the parts of a step, 32
//                                               columns each
//
// The metadata of 64 x 64 of A is 32 rows of 16 bytes, swizzled beforehand (formats/two_four.py),
// which one ldmatrix.x4 gives to a warp for both parts: lanes 0 and 1 of every four hold the first,
// lanes 2 and 3 the second, and the instruction's selector says which. Even threads copy it,
// because .cg, past L1, takes 16 bytes and nothing less.
//
// Template:  DTYPE      BF16 or F16
//            BM, BN, BK rows and columns of C that a block computes, columns of A in a stage;
//                       published: 128, 128, 64
//            WM, WN     of it, what a warp computes: 32 or 64 each; published: 64, 64
//            STAGES     of cp.async, from 2; published: 3
//            CACHE      CG: copies of 16 bytes pass L1 by; CA: they leave their bytes there;
//                       published: CG
//            METADATA   EVEN_THREADS or FIRST_WARPS copy 16 bytes each, ALL_THREADS 8 by .ca;
//                       published: EVEN_THREADS
//            SELECTORS  2: the pairs of lanes take turns; 1: always lanes 0 and 1, without
//                       ldmatrix; published: 2
//            LDMATRIX   4: metadata of two parts at once; 2: of one, see mma_warp.cuh; published: 4
//            GROUP      rows of tiles that neighbouring blocks walk down before across; published:
//                       1, row by row
//            ALIGN      bytes that divide every row of B, C and C_in: 16, or with MASK 8, 4 or 2
//            MASK       whether m, n and k are any sizes; otherwise multiples of BM, BN and BK, as
//                       published
//            EPILOGUE   PLAIN, or ALPHA, | BETA, | BIAS

#include "mma_tile.cuh"
#include "mma_warp.cuh"

template <Dtype DTYPE, int BM, int BN, int BK, int WM, int WN, int STAGES, CachePolicy CACHE,
          MetadataBy METADATA, int SELECTORS, int LDMATRIX, int GROUP, int ALIGN, bool MASK,
          int EPILOGUE>
__global__ void __launch_bounds__(MmaTile<BM, BN, BK, WM, WN>::THREADS)
    mma_sp(int m, int n, int k,
           const u16* __restrict__ val,     // m' x k' / 2, values; m, k rounded up to BM, BK, zeros
           const u16* __restrict__ meta,    // m' / 2 x k' / 8, `two_four.swizzle(meta, BM, BK)`
           const u16* __restrict__ B,       // k x n
           u16* __restrict__ C,             // m x n
           float alpha, float beta,         // not looked at by PLAIN; beta by BETA only
           const u16* __restrict__ C_in,    // m x n, by BETA only
           const float* __restrict__ bias)  // m, by BIAS only: one for each row
{
    using T = MmaTile<BM, BN, BK, WM, WN>;
    static_assert(STAGES >= 2, "one stage is filled while another is multiplied");
    static_assert(
        2 * BM * BN <= STAGES * T::STAGE, "the tile of C reuses the stages: choose more of them");
    extern __shared__ __align__(128) char shared[];  // STAGES stages, see mma_tile.cuh
    const unsigned stages = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    const unsigned last = stages + (STAGES - 1) * T::STAGE;

    const int2 tile = tile_of_block<T, GROUP>(m, n);
    const int steps = (k - 1) / BK + 1;
    Copy<T, CACHE, METADATA, ALIGN, MASK> copy(val, meta, B, tile.x, tile.y, n, k, steps);
#pragma unroll
    for (int step = 0; step < STAGES - 1; ++step) {
        copy.next(stages + step * T::STAGE, step < steps);
        cp_async_commit_group();
    }

    const Warp<T, SELECTORS, LDMATRIX> warp;
    float acc[WM / 16][WN / 8][4] = {};
    Fragments<T> fragments[2];  // of one part, while those of the next arrive
    constexpr int PARTS = BK / 32;
    unsigned stage = stages;
    cp_async_wait_group<STAGES - 2>();
    __syncthreads();
    warp.load(fragments[0], fragments[1], stage, 0);

    for (int step = 0; step < steps; ++step) {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            if (part ==
                PARTS - 1) {  // on to the next stage, which must have landed, of all threads
                cp_async_wait_group<STAGES - 2>();
                __syncthreads();
                stage = stage == last ? stages : stage + T::STAGE;
            }
            warp.load(fragments[(part + 1) % 2], fragments[part % 2], stage, (part + 1) % PARTS);
            if (part == 0) {  // all threads have left the stage of the step before
                copy.next(stage == stages ? last : stage - T::STAGE, step + STAGES - 1 < steps);
                cp_async_commit_group();
            }
            warp.template multiply<DTYPE>(acc, fragments[part % 2], part);
        }
    }

    cp_async_wait_group<0>();
    // The last fragments, loaded ahead of a step that does not come, have left shared memory too.
    __syncthreads();
    const int2 again = tile_of_block<T, GROUP>(m, n);
    const unsigned thread = thread_now();
    const int row = again.x + T::warp_m(thread), column = again.y + T::warp_n(thread);
    const size_t at = (size_t)row * n + column;
    store_tile<T, DTYPE, ALIGN, MASK, EPILOGUE>(
        acc, thread % 32, shared + thread / 32 * (WM * WN * 2), C + at, n, m - row, n - column,
        alpha, beta, C_in + at, bias + row);
}
