// wgmma_cp_async: for products of a few microseconds. The threads that multiply also copy, past the
// copy engine.
//
//   copy engine   barriers ─► tensor maps ─► operands ─► tensor cores ─► shared memory ─► C
//   cp.async                                 operands ─► tensor cores ─► C
//   which is there half a microsecond earlier, of six
//
// A stage is four steps of 64 columns, so that threads wait for each other once for eight wgmma.sp;
// while these are under way, the next stage is asked for. Tiles of 64 x 16 to 64 x 64 are as many
// as there are SMs where C is small. Code comes from DRAM, too, and is short: one place that
// copies, for the first stages and for the others.
//
// Template:  T       BF16 or F16
//            N       columns of the tile of C, which has 64 rows: 16, 32 or 64
//            STAGES  stages of the ring
//            EXTRA   as in store.cuh
#include "cp_async.cuh"
#include "store_rows.cuh"

template <Dtype T, int N, int STAGES, int EXTRA>
__global__ void __launch_bounds__(128) wgmma_cp_async(
    const unsigned short* __restrict__ a,
    const unsigned* __restrict__ e,  // m x 32 steps; m'/64 rows of `words`, 128 a step
    const unsigned short* __restrict__ b, unsigned short* __restrict__ c,  // k x b_pitch; m x pitch
    int steps,  // k in steps of 64; one block a tile, (blockIdx.x, blockIdx.y)
    float alpha, float beta, const unsigned short* c_in, const float* bias, int m, int n,
    int pitch,  // Scale: store.cuh
    int k, int words, int b_pitch)
{
    constexpr int DEEP = 4;  // steps of a stage
    constexpr int B_BYTES = 128 * N, STEP = B_BYTES + 4096,
                  WORDS = DEEP * STEP;  // B, A; then metadata of all steps
    constexpr int STAGE = WORDS + DEEP * 512, UNITS = N / 8,
                  ROWS = 128 / UNITS;  // of B, 16 bytes each; copied at a time
    static_assert(N == 16 || N == 32 || N == 64,
                  "a row of B is a swizzled row: its descriptor is that of a K-major matrix");
    static_assert(STAGES >= 2, "a stage is multiplied while others are copied");
    const Scale scale{alpha, beta, c_in, bias, m, n, pitch};
    extern __shared__ __align__(1024) unsigned char shared[];
    const int t = threadIdx.x, row = blockIdx.x * 64, column = blockIdx.y * N,
              stages = (steps + DEEP - 1) / DEEP;

    // Where this thread copies from, and to in a step. What lies beyond m and n is not stored: the
    // last row and the last columns stand there. Beyond k are zeros, with the metadata of the last
    // step.
    const int a_row = t / 4, b_row = t / UNITS, b_unit = t % UNITS;
    const unsigned short* upper = a + (size_t)min(row + a_row, m - 1) * 32 * steps + 8 * (t % 4);
    const unsigned short* lower =
        a + (size_t)min(row + a_row + 32, m - 1) * 32 * steps + 8 * (t % 4);
    const unsigned short* of_b =
        b + (size_t)b_row * b_pitch + min(column + 8 * b_unit, (n - 1) / 8 * 8);
    const unsigned* of_e = e + (size_t)(row / 64) * words + t;
    const unsigned to_a =
        B_BYTES + 64 * a_row + 16 * (t % 4 ^ a_row / 2 % 4);  // swizzled over 64 bytes
    const unsigned to_b =
        2 * N * b_row + 16 * (b_unit ^ b_row * UNITS / 8 % UNITS);  // over those of a row
    int left = k;
    const auto copy = [&](unsigned stage) {
#pragma unroll
        for (int i = 0; i < DEEP; ++i, left -= 64) {
            const unsigned to = stage + i * STEP;
            cp_async_or_zeros<16, CG>(to + to_a, upper, left > 0);
            cp_async_or_zeros<16, CG>(to + to_a + 2048, lower, left > 0);
#pragma unroll
            for (int j = 0; j < 64; j += ROWS)
                cp_async_or_zeros<16, CG>(
                    to + to_b + 2 * N * j, of_b + (size_t)j * b_pitch, b_row + j < left);
            cp_async<4, CA>(stage + WORDS + 512 * i + 4 * t, of_e);
            upper += 32, lower += 32, of_b += (size_t)64 * b_pitch;
            if (left > 64) of_e += 128;
        }
    };
    float acc[1][N / 2];
#pragma unroll 1
    for (int s = 1 - STAGES; s < stages; ++s) {
        if (s >= 0) {
            cp_async_wait_group<STAGES - 2>();
            async_proxy_fence();
            __syncthreads();  // everybody's copies are there; the stage before is done with
            const unsigned char* from = shared + s % STAGES * STAGE;
            unsigned word[DEEP];
#pragma unroll
            for (int i = 0; i < DEEP; ++i)
                word[i] = *reinterpret_cast<const unsigned*>(from + WORDS + 512 * i + 4 * t);
            unsigned long long right = k_major<2 * N>(from), mine = k_major<64>(from + B_BYTES);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < DEEP; ++i, right += STEP / 16, mine += STEP / 16) {
                Wgmma<N, T>::template sparse<0>(acc[0], mine, right, word[i], s > 0 || i > 0);
                Wgmma<N, T>::template sparse<1>(acc[0], mine + 2, right + B_BYTES / 32, word[i], 1);
            }
            wgmma_commit();
        }
        if (s + STAGES - 1 < stages)
            copy(shared_address(shared) + (s + STAGES - 1) % STAGES * STAGE);
        cp_async_commit_group();
        wgmma_wait<0>();
    }
    settle(acc);
    store_rows<T, EXTRA>(acc[0], c, row, column, scale);
}
