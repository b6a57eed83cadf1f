// The main loop of bulk.cu, stream.cu and cluster.cu: a ring of stages that the copy engine fills
// and all warps multiply.
//
//   stage      As (box of A^T, by TMA) │ Bs │ index          one full and one empty barrier each
//
//   step s     wait until its stage is full; multiply all rows but the last; wait for stage s + 1
//              and load its first fragment; multiply the last row; say that the stage is empty
//   refill     after step s one warp, each in its turn, refills the stage of step s - 1, which the
//              others have left by then: no warp has to be spared for copying, which would cost a
//              third of everyone's registers
//
// Template:  T               the tile, see fragments.cuh
//            ROWS, DEPTH     compressed rows of B and rows of A^T in a step: N and M of the
//                            pattern, times its windows
//            STAGES          of the ring, from 2, with AHEAD from 3
//            AHEAD           load the next stage's first fragment before the last row is
//                            multiplied, as said above
//            UNROLL          rows of the loop's body: ROWS, or fewer for less code, a multiple of 4
//                            that divides ROWS
#pragma once

#include "fragments.cuh"
#include "tma.cuh"

// Where in memory the three parts of a step lie.
struct Where {
    int x, y;          // column and row of A^T
    const float* val;  // [ROWS][BN]
    const int* index;  // [BN / SLOT][ROWS]
};

// Steps of one tile, one after the other.
template <class R>
struct Panel {
    int x, first;      // column of A^T; the tile's first step
    const float* val;  // of the tile: [steps][ROWS][BN]
    const int* index;  // of the tile: [steps][BN / SLOT][ROWS]
    __device__ __forceinline__ Where operator()(int position) const
    {
        const int step = first + position;
        return {x, step * R::DEPTH, val + (size_t)step * R::B_FLOATS,
                index + (size_t)step * R::INDICES};
    }
};

template <class T, int ROWS_, int DEPTH_, int STAGES, bool AHEAD, int UNROLL>
struct Ring {
    static constexpr int ROWS = ROWS_, DEPTH = DEPTH_, BM = T::BM;
    static constexpr int A_FLOATS = DEPTH * T::BM, B_FLOATS = ROWS * T::BN,
                         INDICES = T::BN / T::SLOT * ROWS;
    static constexpr int STAGE =
        (A_FLOATS + B_FLOATS + INDICES + 31) / 32 * 32;  // floats; TMA wants 128 bytes
    static_assert(
        ROWS % 4 == 0,
        "indices are read four at a time: choose windows so that a step has 4, 8, ... rows");
    static_assert(UNROLL % 4 == 0 && ROWS % UNROLL == 0,
                  "the loop's body is some of a step's rows, four at a time");
    static_assert(STAGES >= (AHEAD ? 3 : 2),
                  "a stage is refilled one step after it was left: choose another stage");
    static_assert(DEPTH <= 256 && T::BM <= 256, "a box of TMA has at most 256 rows and columns");

    float* stages;      // [STAGES][STAGE]
    Barrier* barriers;  // [2][STAGES]: the stage is full, is empty
    const TensorMap* A;
    unsigned full, empty, a, b,
        d;  // addresses: barriers; where the thread's parts of the first stage begin
    Place<STAGES> place, refill;  // the stage to multiply next, and the one to fill again next
    Fragment<T> f[2];
    Rows<T> now, next;

    __device__ __forceinline__ Ring(float* stages, Barrier* barriers, const TensorMap& A,
                                    const T& t)
        : stages(stages),
          barriers(barriers),
          A(&A),
          full(address(barriers)),
          empty(full + STAGES * 8)
    {
        a = address(stages + t.m), b = address(stages + A_FLOATS + t.n);
        d = address(stages + A_FLOATS + B_FLOATS + t.n / T::SLOT * ROWS);
    }

    // One thread asks for a step's three parts.
    __device__ __forceinline__ void copy(const Where& from, int stage)
    {
        float* to = stages + stage * STAGE;
        arrive_expect(&barriers[stage], (A_FLOATS + B_FLOATS + INDICES) * 4);
        tma_load(to, *A, from.x, from.y, &barriers[stage]);
        bulk_load(to + A_FLOATS, from.val, B_FLOATS * 4, &barriers[stage]);
        bulk_load(to + A_FLOATS + B_FLOATS, from.index, INDICES * 4, &barriers[stage]);
    }

    // Fills the ring with the first of `total` steps; where(position) says where a step lies.
    template <class Source>
    __device__ __forceinline__ void start(const Source& where, int total)
    {
        if (threadIdx.x == 0) {
            for (int s = 0; s < STAGES; ++s)
                barrier_init(&barriers[s], 1), barrier_init(&barriers[STAGES + s], T::WARPS);
            barrier_init_fence();
            for (int s = 0; s < STAGES && s < total; ++s) copy(where(s), s);
        }
        __syncthreads();
    }

    // Four rows from b on, whose indices are known; meanwhile the first fragment of the next four
    // is loaded.
    __device__ __forceinline__ void four(float (&acc)[T::TN][T::TM], unsigned a, unsigned b,
                                         unsigned next_a, unsigned next_b, unsigned next_d)
    {
        next.template load<ROWS>(next_d);
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            if (s < 3) f[(s + 1) % 2].load(a, b + (s + 1) * T::BN * 4, now, s + 1);
            else f[0].load(next_a, next_b, next, 0);
            f[s % 2].template multiply<true>(acc);
        }
        now = next;
    }

    // acc += the product of the steps at positions first ... last - 1 of `total`. All are
    // multiplied, one call after the other. tail: rows of the last of these steps that are not
    // zeros, a multiple of UNROLL; the others are left out.
    template <class Source>
    __device__ __forceinline__ void multiply(float (&acc)[T::TN][T::TM], const Source& where,
                                             int first, int last, int total, int tail = ROWS)
    {
        if (AHEAD && first < last) {
            wait(full + place.stage * 8, place.parity);
            const int at = place.stage * STAGE * 4;
            now.template load<ROWS>(d + at), f[0].load(a + at, b + at, now, 0);
        }
        for (int step = first; step < last; ++step) {
            const int at = place.stage * STAGE * 4, stage = place.stage;
            if constexpr (!AHEAD) {
                wait(full + place.stage * 8, place.parity);
                place.next();
                multiply_stage<T, ROWS, UNROLL, true>(
                    acc, a + at, b + at, d + at, step + 1 < last ? ROWS : tail);
            } else {
                place.next();
                const bool more = step + 1 < last;
                const int then = more ? place.stage * STAGE * 4
                                      : at;  // after the last step some fragment that nobody uses
#pragma unroll(UNROLL == ROWS ? ROWS / UNROLL : 1)
                for (int q = 0; q < ROWS; q += UNROLL) {
                    const bool here = q + UNROLL < ROWS;  // are the next rows in this stage, too?
#pragma unroll
                    for (int v = 0; v < UNROLL - 4; v += 4)
                        four(acc, a + at, b + at + (q + v) * T::BN * 4, a + at,
                             b + at + (q + v + 4) * T::BN * 4, d + at + (q + v + 4) * 4);
                    if (!here && more) wait(full + place.stage * 8, place.parity);
                    four(acc, a + at, b + at + (q + UNROLL - 4) * T::BN * 4, a + (here ? at : then),
                         b + (here ? at + (q + UNROLL) * T::BN * 4 : then),
                         d + (here ? at + (q + UNROLL) * 4 : then));
                }
            }
            __syncwarp();
            if (threadIdx.x % 32 == 0) arrive(empty + stage * 8);
            if (step > 0) {
                if (threadIdx.x == step % T::WARPS * 32 && step - 1 + STAGES < total) {
                    wait(empty + refill.stage * 8, refill.parity);
                    copy(where(step - 1 + STAGES), refill.stage);
                }
                __syncwarp();
                refill.next();
            }
        }
    }
};
