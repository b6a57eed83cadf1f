// stream: every block multiplies the same number of steps, however the tiles of C divide among the
// SMs (stream-K).
//
// 512 tiles on 132 SMs are 3.88 waves that take the time of 4. Here a block follows a list that was
// made offline (launch.py): first a share of the tiles that do not fill a wave, cut along k, then
// whole tiles.
//
//   block        0              1              2          steps of the shared tiles, one after the
//   share   ├──────────────┼──────────────┼──────────────┤  other
//   tile    ├─────────┼─────────┼─────────┼─────────┼─ ─ ─
//                  head of tile 1: block 0, tail: block 1
//
// Of its share a block multiplies the last part first: if that lacks the tile's last step, its sums
// go to a workspace, and the block that has this step adds them to its own, always in the same
// order. It comes to that at its share's end, when they have long been there; launches need no
// clearing in between (handover.cuh). The copy engine does not stop between two parts: it is
// already at the next one while a block writes C.
//
// Template:  the same as bulk.cu's

#include "handover.cuh"
#include "ring.cuh"
#include "sums.cuh"

struct Part {
    int tile;    // row of tiles + (column of tiles << 16)
    int first;   // step
    int start;   // steps of the block before this part; the list ends with a part of no steps that
                 // says how many there are
    int others;  // -1: its sums go to the workspace; else parts of the same tile, of as many blocks
                 // before this one
};

// A step of the list: the parts from the current one on are searched, as a ring is at most some
// parts ahead.
template <class R>
struct Schedule {
    const Part* part;
    int steps;
    const float* val;
    const int* index;
    __device__ __forceinline__ Where operator()(int position) const
    {
        const Part* p = part;
        while (p[1].start <= position) ++p;
        const int x = p->tile & 0xffff, step = p->first + position - p->start;
        const size_t stage = (size_t)(p->tile >> 16) * steps + step;
        return {x * R::BM, step * R::DEPTH, val + stage * R::B_FLOATS, index + stage * R::INDICES};
    }
};

// Adds the thread's part of a tile in the workspace, BN x BM.
template <class T>
__device__ __forceinline__ void add(float (&acc)[T::TN][T::TM], const float* tile, const T& t)
{
#pragma unroll
    for (int j = 0; j < T::TN; ++j) {
#pragma unroll
        for (int c = 0; c < T::TM; c += 4) {
            const float* from =
                tile + (t.n + j / 4 * 4 * T::ACROSS + j % 4) * T::BM + t.m + T::DOWN * c;
            const float4 x = __ldcg(reinterpret_cast<const float4*>(from));
            acc[j][c] += x.x, acc[j][c + 1] += x.y, acc[j][c + 2] += x.z, acc[j][c + 3] += x.w;
        }
        if (j % 2) asm volatile("" ::: "memory");  // TM / 2 loads in flight, no more: registers
    }
}

template <int BM, int BN, int TM, int TN, int SLOT, int ROWS, int DEPTH, int STAGES, bool AHEAD,
          int UNROLL, int BLOCKS, bool ALIGNED>
__global__ void __launch_bounds__(BM* BN / TM / TN, BLOCKS) stream(
    int m, int n, int steps,              // sizes of C; steps of DEPTH rows of A^T
    float alpha,                          // C = alpha A B; 1
    const __grid_constant__ TensorMap A,  // A^T: k x m, boxes of DEPTH x BM
    const float* __restrict__ val,        // tiles along n x steps x ROWS x BN
    const int* __restrict__ index,  // tiles along n x steps x BN/SLOT x ROWS: rows within the step
    int tail,                       // rows of a tile's last step, without those that are padding
    const Part* __restrict__ parts, int most,  // gridDim.x x most: what each block does
    float* partial,                            // workspace: gridDim.x x BN x BM
    Handover* handovers,  // workspace: gridDim.x x warps, zeros before the first launch
    float* C)             // m x n, column-major
{
    using T = FragmentTile<BM, BN, TM, TN, SLOT>;
    using R = Ring<T, ROWS, DEPTH, STAGES, AHEAD, UNROLL>;
    extern __shared__ __align__(128) float stages[];
    __shared__ Barrier barriers[2 * STAGES];
    Schedule<R> schedule{parts + (size_t)blockIdx.x * most, steps, val, index};
    const int total = parts[(size_t)(blockIdx.x + 1) * most - 1].start;
    const int warp = threadIdx.x / 32;

    const T t;
    R ring(stages, barriers, A, t);
    ring.start(schedule, total);
    while (schedule.part->start < total) {
        const Part part = *schedule.part;
        float acc[TN][TM] = {};
        ring.multiply(acc, schedule, part.start, schedule.part[1].start, total,
                      part.others < 0 ? ROWS : tail);
        ++schedule.part;
        scale<T>(acc, alpha);  // sums of the workspace are scaled ones

        for (int block = blockIdx.x - part.others; block < (int)blockIdx.x && part.others > 0;
             ++block) {
            Handover* sums = handovers + block * T::WARPS + warp;
            await(sums);
            add(acc, partial + (size_t)block * BM * BN, t);
            __syncwarp();  // none of the warp is waiting
            if (threadIdx.x % 32 == 0) take(sums);
        }
        const bool whole = part.others >= 0;
        float* to = whole ? C : partial + (size_t)blockIdx.x * BM * BN;
        store<ALIGNED>(to, acc, t, whole ? m : BM, whole ? n : BN, whole ? part.tile & 0xffff : 0,
                       whole ? part.tile >> 16 : 0);
        if (!whole) {
            __threadfence();
            __syncwarp();
            if (threadIdx.x % 32 == 0) leave(handovers + blockIdx.x * T::WARPS + warp);
        }
    }
}
