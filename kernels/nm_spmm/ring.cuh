// The main loop of bulk.cu and cluster.cu: a ring of stages that the copy engine fills and all warps multiply.
//
//   stage      As (box of A^T, by TMA) │ Bs │ index          one full and one empty barrier each
//
//   step s     wait until its stage is full; multiply all rows but the last; wait for stage s + 1 and load its first
//              fragment; multiply the last row; say that the stage is empty
//   refill     after step s one warp, each in its turn, refills the stage of step s - 1, which the others have left by
//              then: no warp has to be spared for copying, which would cost a third of everyone's registers
//
// Template:  T               the tile, see fragments.cuh
//            ROWS, DEPTH     compressed rows of B and rows of A^T in a step: N and M of the pattern, times its windows
//            STAGES          of the ring, from 2, with AHEAD from 3
//            AHEAD           load the next stage's first fragment before the last row is multiplied, as said above
#pragma once

#include "fragments.cuh"
#include "tma.cuh"

template <class T, int ROWS_, int DEPTH_, int STAGES, bool AHEAD>
struct Ring {
    static constexpr int ROWS = ROWS_, DEPTH = DEPTH_;
    static constexpr int A_FLOATS = DEPTH * T::BM, B_FLOATS = ROWS * T::BN, INDICES = T::BN / T::SLOT * ROWS;
    static constexpr int STAGE = (A_FLOATS + B_FLOATS + INDICES + 31) / 32 * 32;  // floats; TMA wants 128 bytes
    static_assert(ROWS % 4 == 0, "indices are read four at a time: choose windows so that a step has 4, 8, ... rows");
    static_assert(STAGES >= (AHEAD ? 3 : 2), "a stage is refilled one step after it was left: choose another stage to look ahead");
    static_assert(DEPTH <= 256 && T::BM <= 256, "a box of TMA has at most 256 rows and columns");

    float* stages;  // [STAGES][STAGE]
    Barrier *full, *empty;
    const TensorMap* A;
    const float* val;  // of this block: [steps][ROWS][BN]
    const int* index;  // of this block: [steps][BN / SLOT][ROWS]

    __device__ __forceinline__ void init()
    {
        if (threadIdx.x == 0) {
            for (int s = 0; s < STAGES; ++s) barrier_init(&full[s], 1), barrier_init(&empty[s], T::WARPS);
            barrier_init_fence();
        }
        __syncthreads();
    }

    // One thread asks for a step's three parts.
    __device__ __forceinline__ void copy(int step, int stage)
    {
        float* to = stages + stage * STAGE;
        arrive_expect(&full[stage], (A_FLOATS + B_FLOATS + INDICES) * 4);
        tma_load(to, *A, blockIdx.x * T::BM, step * DEPTH, &full[stage]);
        bulk_load(to + A_FLOATS, val + (size_t)step * B_FLOATS, B_FLOATS * 4, &full[stage]);
        bulk_load(to + A_FLOATS + B_FLOATS, index + (size_t)step * INDICES, INDICES * 4, &full[stage]);
    }

    // acc += the product of the steps from `first` up to `last`.
    __device__ __forceinline__ void multiply(float (&acc)[T::TN][T::TM], const T& t, int first, int last)
    {
        Place<STAGES> place, ahead;
        for (int s = 0; s < STAGES; ++s)
            if (threadIdx.x == 0 && first + s < last) copy(first + s, s);
        const float* a = stages + t.m;
        const float* b = stages + A_FLOATS + t.n;
        const int* d = reinterpret_cast<const int*>(stages + A_FLOATS + B_FLOATS) + t.n / T::SLOT * ROWS;
        Fragment<T> f[2];
        Rows<T> now, next;
        if (AHEAD && first < last) wait(&full[0], 0), now.template load<ROWS>(d), f[0].load(a, b, now, 0);

        for (int step = first; step < last; ++step) {
            const int at = place.stage * STAGE, warp = threadIdx.x / 32;
            if constexpr (!AHEAD) {
                wait(&full[place.stage], place.parity);
                multiply_stage<T, ROWS, true>(acc, a + at, b + at, d + at);
                place.next();
            } else {
                place.next();
                const bool more = step + 1 < last;
                const int then = more ? place.stage * STAGE : at;  // after the last step some fragment that nobody uses
#pragma unroll
                for (int q = 0; q < ROWS; q += 4) {
                    const bool here = q + 4 < ROWS;  // are the next four rows in this stage?
                    if (!here && more) wait(&full[place.stage], place.parity);
                    next.template load<ROWS>(d + (here ? at + q + 4 : then));
#pragma unroll
                    for (int s = 0; s < 4; ++s) {
                        if (s < 3) f[(s + 1) % 2].load(a + at, b + at + (q + s + 1) * T::BN, now, s + 1);
                        else f[0].load(a + (here ? at : then), b + (here ? at + (q + 4) * T::BN : then), next, 0);
                        f[s % 2].template multiply<true>(acc);
                    }
                    now = next;
                }
            }
            __syncwarp();
            if (threadIdx.x % 32 == 0) arrive(&empty[at / STAGE]);
            if (step > first) {
                if (threadIdx.x == (step - first) % T::WARPS * 32 && step - 1 + STAGES < last) {
                    wait(&empty[ahead.stage], ahead.parity);
                    copy(step - 1 + STAGES, ahead.stage);
                }
                __syncwarp();
                ahead.next();
            }
        }
    }
};
