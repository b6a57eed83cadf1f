// bf16: C^T = B^T A^T on dense tensor cores, over the rows of A^T that a tile needs (sm_90a; SASS:
// HGMMA).
//
// C column-major is C^T row-major, and gathered rows of A^T, m contiguous, are what wgmma takes as
// its right operand without any transposition ("MN-major"). Columns of C are therefore wgmma's
// rows:
//
//                  256 of m
//              ┌─ ─ ─ ┬─ ─ ─ ┐   64 gathered rows in panels of 64 columns: 128 bytes a row,
//         K=64 │ panel│  ... │   128-byte swizzle, which the producers apply: the 16-byte unit u
//              └─ ─ ─ ┴─ ─ ─ ┘   of row r lies at u ^ r % 8
//   ┌──────┐   ┌─────────────┐
//   │values│   │ warpgroup 0 │   columns 0 to 63 of the tile
//   │      │   │ warpgroup 1 │   columns 64 to 127
//   └──────┘   └─────────────┘
//      128 of n
//
// Template:  STAGES   of the ring, 48 KiB each
//            BUFFERS  squares of 64 x 64 that a warpgroup stores C through, 8 KiB each: 1, 2 or 4
#include "store.cuh"
#include "tensor_tile.cuh"

constexpr int ROWS = 64, PANEL = ROWS * 128;

template <int STAGES, int BUFFERS>
struct Shared {
    unsigned char values[STAGES][VALUES];  // 1024 bytes aligned, as all are here
    unsigned char gathered[STAGES][M / 64 * PANEL];
    unsigned char square[2][BUFFERS][8192];
};

template <int STAGES, int BUFFERS>
__global__ void __launch_bounds__(THREADS, 1)
    bf16(const unsigned char* __restrict__ a,
         int lda,  // A: row i of A^T begins at element i * lda; lda a multiple of 8
         const int* __restrict__ start,  // B: tensor_tile.cuh
         const int* __restrict__ index, const unsigned char* __restrict__ values,
         const __grid_constant__ TensorMap c,  // C^T, n x m row-major: boxes of 64 x 64
         int along_m, int along_n, int band)   // tiles: TileOrder of C^T
{
    static_assert(M / 64 % BUFFERS == 0, "squares take turns, and a tile ends where it began");
    extern __shared__ __align__(1024) unsigned char dynamic[];
    auto& shared = *reinterpret_cast<Shared<STAGES, BUFFERS>*>(dynamic);
    __shared__ Barrier full[STAGES], empty[STAGES];
    begin<STAGES>(full, empty);
    StepWalk at(start, {along_n, along_m, band});
    const int group =
        __shfl_sync(~0u, threadIdx.x / 128, 0);  // the compiler sees that a warp's threads agree

    if (group == 2) {
        give_registers<56>();
        const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        // Lane l copies unit l of the 512 bytes of a row, and warp w rows 16 w to 16 w + 15.
        const unsigned to =
            shared_address(shared.gathered[0]) + lane / 8 * PANEL + warp * 2048 + lane % 8 * 16;
        produce<ROWS, CONSUMERS>(
            at, index, values, shared.values, full, empty, [=](int stage, int column, int row) {
                const unsigned char* from =
                    a + 2 * (size_t)min(
                                column * M + 8 * lane, lda - 8);  // beyond m: anything, not stored
                const unsigned here = to + stage * (M / 64 * PANEL);
#pragma unroll
                for (int i = 0; i < ROWS / 4; ++i) {
                    const unsigned r = __shfl_sync(~0u, row, i);
                    cp_async<16, CG>(
                        (here ^ i % 8 * 16) + i * 128, from + (size_t)r * (2 * (unsigned)lda));
                }
            });
        return;
    }

    take_registers<224>();
    const bool leader = threadIdx.x % 128 == 0;
    float acc[1][M / 2];
    Place<STAGES> place;
    for (; at.more(); at.next_tile()) {
        consume<1, false>(
            acc, place, at.step, at.end, full,
            [&](int, int stage, bool add) {
                async_proxy_fence();  // what cp.async wrote, before wgmma reads it
                const unsigned long long left =
                    wgmma_matrix(shared.values[stage] + group * 8192, 0, 1024);
                const unsigned long long right = wgmma_matrix(shared.gathered[stage], PANEL, 1024);
                wgmma_fence();
#pragma unroll
                for (int k = 0; k < ROWS / 16;
                     ++k)  // 16 values are 32 bytes, 16 gathered rows 2048, counted in 16 bytes
                    Wgmma<M, BF16>::dense(acc[0], left + 2 * k, right + 128 * k, k > 0 || add);
                wgmma_commit();
            },
            [&](int stage) { hand_back_warp(&empty[stage]); });
#pragma unroll
        for (int i = 0; i < M / 64; ++i) {
            unsigned char* square = shared.square[group][i % BUFFERS];
            if (leader) tma_store_wait<BUFFERS - 1>();  // the copy engine has read what it held
            named_barrier(1 + group, 128);
            arrange_square(square, [&](int j, int, int) {
                return pack<BF16>(acc[0][32 * i + j], acc[0][32 * i + j + 1]);
            });
            async_proxy_fence();
            named_barrier(1 + group, 128);
            if (leader) {
                tma_store(c, at.column * M + 64 * i, at.row * N + 64 * group, square);
                tma_store_commit();
            }
        }
    }
    if (leader) tma_store_wait<0>();
}
