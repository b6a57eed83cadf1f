// tf32: C = A B on dense tensor cores, over the rows of A^T that a tile needs, A in registers
// (sm_90a; SASS: HGMMA).
//
// For 32-bit types wgmma reads shared memory K-major only, but gathered rows of A^T are contiguous
// along m. So A takes the other way, through registers. The rows of an instruction are ours to
// name: lane 4 g + t of a warp reads 4 floats at once,
//
//   rows 4 g to 4 g + 3 of the warp's 32, of gathered row t
//     = (g, t), (g + 8, t) of two blocks of 64 x 8
//
// which a pitch of 256 + 8 floats keeps free of bank conflicts, and stores 4 neighbours of a column
// of C at once.
//
//                   128 of n
//                  ┌────────┐
//                  │ values │ K=32
//        K=32      └────────┘
//   ┌──────────┐   ┌────────┐
//   │ gathered │   │ wg 0   │   rows 0 to 127 of the tile: warp w has 32 w to 32 w + 31
//   │ (as A^T) │   │ wg 1   │   rows 128 to 255
//   └──────────┘   └────────┘
//     256 of m
//
// Template:  STAGES  of the ring, 49 KiB each
//            WHOLE   whether columns of C begin at multiples of 16 bytes, m % 4 == 0: stores are 16
//                    bytes, else 4
#include "tensor_tile.cuh"
#include "tf32_left.cuh"

constexpr int ROWS = 32, PITCH = M + 8;  // gathered rows of a stage; floats from one to the next

template <int STAGES>
struct Shared {
    unsigned char values[STAGES][VALUES];  // 1024 bytes aligned
    float gathered[STAGES][ROWS * PITCH];
};

template <int STAGES, bool WHOLE>
__global__ void __launch_bounds__(THREADS, 1)
    tf32(const float* __restrict__ a,
         int lda,  // A: row i of A^T begins at element i * lda; lda a multiple of 4
         const int* __restrict__ start,  // B: tensor_tile.cuh
         const int* __restrict__ index, const unsigned char* __restrict__ values,
         float* __restrict__ c, int rows, int columns,  // C: rows x columns, column-major
         int along_m, int along_n, int band)            // tiles: TileOrder of C^T
{
    extern __shared__ __align__(1024) unsigned char dynamic[];
    auto& shared = *reinterpret_cast<Shared<STAGES>*>(dynamic);
    __shared__ Barrier full[STAGES], empty[STAGES];
    begin<STAGES>(full, empty);
    StepWalk at(start, {along_n, along_m, band});
    const int group =
        __shfl_sync(~0u, threadIdx.x / 128, 0);  // the compiler sees that a warp's threads agree
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;

    if (group == 2) {
        give_registers<56>();
        // Warp w copies rows 8 w to 8 w + 7, 128 floats at a time.
        const unsigned to =
            shared_address(shared.gathered[0]) + warp * (ROWS / 4) * PITCH * 4 + lane * 16;
        produce<ROWS, CONSUMERS>(
            at, index, values, shared.values, full, empty, [=](int stage, int column, int row) {
                const float* left =
                    a + min(column * M + 4 * lane, lda - 4);  // beyond m: anything, not stored
                const float* right = a + min(column * M + 128 + 4 * lane, lda - 4);
                const unsigned here = to + stage * (ROWS * PITCH * 4);
#pragma unroll
                for (int i = 0; i < ROWS / 4; ++i) {
                    const size_t r = (size_t)(unsigned)__shfl_sync(~0u, row, i) * (unsigned)lda;
                    cp_async<16, CG>(here + i * PITCH * 4, left + r);
                    cp_async<16, CG>(here + i * PITCH * 4 + 512, right + r);
                }
            });
        return;
    }

    take_registers<224>();
    const int mine = 128 * group + 32 * warp + 4 * g;  // first of this lane's 4 rows of the tile
    float acc[2][N / 2];
    uint4 fragment[ROWS / 8][2];
    Place<STAGES> place;
    for (; at.more(); at.next_tile()) {
        for (int step = at.step; step < at.end; ++step) {
            wait(&full[place.stage], place.parity);
            const float* gathered = shared.gathered[place.stage] + t * PITCH + mine;
#pragma unroll
            for (int k = 0; k < ROWS / 8; ++k) {
                const float4 x = *reinterpret_cast<const float4*>(gathered + 8 * k * PITCH);
                const float4 y = *reinterpret_cast<const float4*>(gathered + (8 * k + 4) * PITCH);
                fragment[k][0] = bits(x.x, x.y, y.x, y.y);
                fragment[k][1] = bits(x.z, x.w, y.z, y.w);
            }
            const unsigned long long right = wgmma_matrix(shared.values[place.stage], 0, 1024);
#pragma unroll
            for (int k = 0; k < ROWS / 8; ++k) pin(fragment[k][0]), pin(fragment[k][1]);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < ROWS / 8; ++k)  // 8 values are 32 bytes, counted in 16
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    WgmmaTf32<N>::dense(
                        acc[i], fragment[k][i], right + 2 * k, k > 0 || step > at.step);
            wgmma_commit();
            wgmma_wait<0>();  // meanwhile the other warpgroup's instructions run
            hand_back_warp(&empty[place.stage]);
            place.next();
        }
        settle(acc);

        const int row = at.column * M + mine;
#pragma unroll
        for (int j = 0; j < N / 4; ++j) {  // 2 columns of every 8 are this lane's
            const int column = at.row * N + j / 2 * 8 + 2 * t + j % 2, d = j / 2 * 4 + j % 2;
            if (column >= columns) continue;
            float* to = c + (size_t)column * rows + row;
            const float x[4] = {acc[0][d], acc[0][d + 2], acc[1][d], acc[1][d + 2]};
            if constexpr (WHOLE) {
                if (row < rows) *reinterpret_cast<float4*>(to) = {x[0], x[1], x[2], x[3]};
            } else {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    if (row + i < rows) to[i] = x[i];
            }
        }
    }
}
