// Stages of 8-bit operands, as sparse_stages.cuh has them of 16-bit ones: twice the columns of A in
// as many bytes.
//
//   A   M rows x 64 values   compressed columns k/2 to k/2 + 63: 64 bytes a row, 64-byte swizzle
//   B   N rows x 128 values  columns k to k + 127 of B^T, which is row-major: 128 bytes a row,
//                            128-byte swizzle
//   E   M/64 x 256 words     metadata: word 128 h + 32 w + l of a block of 64 rows is for lane l of
//                            warp w of its warpgroup, and the columns k + 64 h to k + 64 h + 63
//
//                 K = 128
//              ┌──────────┐
//            N │   B^T    │    multiplied as 2 x BLOCKS wgmma.sp.m64nNk64 by each of GROUPS
//              └──────────┘    warpgroups, rows as in sparse_stages.cuh; 32 bytes of A's row, 64 of
//                              B's and 128 words of E each
//
// Template:  GROUPS  warpgroups that multiply
//            BLOCKS  blocks of 64 rows of each; M = 64 * GROUPS * BLOCKS
//            N       columns of the tile of C: a multiple of 8 up to 256
//            STAGES  stages of the ring
//            PACKED  whether A lies in the order of use: pieces of 64 rows and 128 columns, 4096
//                    bytes of values, swizzled already, and 1024 of metadata, which one request
//                    brings
#pragma once

#include "consume.cuh"
#include "operands.cuh"
#include "wgmma_eight.cuh"

__device__ __forceinline__ void
load_box(void* to, const TensorMap& map, int x, int y, Barrier* full, bool given, Policy policy)
{
    if (given) tma_load(to, map, x, y, full, policy);
    else tma_load(to, map, x, y, full);
}

template <int GROUPS_, int BLOCKS_, int N_, int STAGES_, bool PACKED = false>
struct Stages {
    static constexpr int GROUPS = GROUPS_, BLOCKS = BLOCKS_, N = N_, STAGES = STAGES_;
    static constexpr int M = 64 * GROUPS * BLOCKS, K = 128, CHUNKS = N / 64;
    static constexpr int A_BYTES = M * 80, B_BYTES = N * 128, BYTES = A_BYTES + B_BYTES;
    // Where the values and the words of a block of 64 rows begin: one after the other, or as a
    // piece brings them.
    static constexpr int PIECE = 5120, VALUES = PACKED ? PIECE : 4096,
                         WORDS = PACKED ? PIECE : 1024, FIRST_WORD = PACKED ? 4096 : M * 64;
    static_assert(N % 8 == 0 && N <= 256, "the instruction multiplies 8 columns to 256");
    static_assert(M <= 256, "a box of the copy engine has up to 256 rows");
    using Accumulators = float[BLOCKS][N / 2];

    unsigned char b[STAGES][B_BYTES];  // first, because it is swizzled over 1024 bytes
    unsigned char a[STAGES][A_BYTES];  // values and metadata

    // One thread asks for stage s: columns k to k + 127 of A, for the tile of C that begins at
    // (row, column).
    __device__ __forceinline__ void load(const Operands& from, int s, int row, int column, int k,
                                         Barrier* full, const Hints& hints)
    {
        arrive_expect(full, BYTES);
        load_box(a[s], from.a, k / 2, row, full, hints.given, hints.a);
        load_box(a[s] + FIRST_WORD, from.e, 2 * k, row / 64, full, hints.given, hints.a);
        load_box(b[s], from.b, k, column, full, hints.given, hints.b);
    }

    __device__ __forceinline__ void
    load_pieces(const unsigned char* packed, int steps, int s, int row, int step, Barrier* full,
                const Hints& hints)
    {
#pragma unroll
        for (int i = 0; i < M / 64; ++i) {
            const unsigned char* piece = packed + ((size_t)(row / 64 + i) * steps + step) * PIECE;
            if (hints.given) bulk_load(a[s] + PIECE * i, piece, PIECE, full, hints.a);
            else bulk_load(a[s] + PIECE * i, piece, PIECE, full);
        }
    }

    // The same from A in the order of use, `fp8.pack`: `steps` pieces for each 64 rows.
    __device__ __forceinline__ void
    load_packed(const Operands& from, const unsigned char* packed, int steps, int s, int row,
                int column, int k, Barrier* full, const Hints& hints)
    {
        arrive_expect(full, BYTES);
        load_pieces(packed, steps, s, row, k / K, full, hints);
        load_box(b[s], from.b, k, column, full, hints.given, hints.b);
    }

    // The same by one of two blocks of a cluster: its own A, and half of the columns of B for both.
    template <int SHARE>
    __device__ __forceinline__ void load_share(const Operands& from, int s, int row, int column,
                                               int k, Barrier* full, const Hints& hints, int rank)
    {
        static_assert(SHARE == 2, "blocks come in pairs");
        arrive_expect(full, BYTES);
        tma_load(a[s], from.a, k / 2, row, full, hints.a);
        tma_load(a[s] + FIRST_WORD, from.e, 2 * k, row / 64, full, hints.a);
        tma_multicast(
            b[s] + rank * (B_BYTES / 2), from.b, k, column + rank * (N / 2), full, 3, hints.b);
    }

    // Both at once: its own A in the order of use, and half of the columns of B for both.
    __device__ __forceinline__ void
    load_packed_share(const Operands& from, const unsigned char* packed, int steps, int s, int row,
                      int column, int k, Barrier* full, const Hints& hints, int rank)
    {
        arrive_expect(full, BYTES);
        load_pieces(packed, steps, s, row, k / K, full, hints);
        tma_multicast(
            b[s] + rank * (B_BYTES / 2), from.b, k, column + rank * (N / 2), full, 3, hints.b);
    }

    // A warpgroup's asynchronous share of half of stage s, its first 64 columns of A or its last.
    // add: whether to add to the accumulators or to begin with zero. word: takes the metadata, and
    // is read until the wgmma are done.
    //
    // A half is a group of wgmma of its own: where one needs two words for the same accumulators
    // while another is under way, ptxas lets every wgmma wait for the one before (C7513).
    __device__ __forceinline__ void multiply(Accumulators& acc, unsigned (&word)[BLOCKS], int s,
                                             int half, int group, bool add) const
    {
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i) {
            const unsigned* e =
                reinterpret_cast<const unsigned*>(a[s] + FIRST_WORD + (group * BLOCKS + i) * WORDS);
            word[i] = e[half * 128 + threadIdx.x % 128];
        }
        const unsigned char* mine = a[s] + group * BLOCKS * VALUES;
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i)
            WgmmaE4m3<N>::sparse(acc[i], k_major<64>(mine + i * VALUES + 32 * half),
                                 k_major<128>(b[s] + 64 * half), word[i], add);
        wgmma_commit();
    }

    // A warpgroup multiplies `steps` stages from the ring, at least one, and hands each back,
    // hand_back(stage), when the first half of the next one has been issued.
    template <class HandBack>
    __device__ __forceinline__ void consume(Accumulators& acc, Place<STAGES>& at, int steps,
                                            int group, Barrier* full, HandBack hand_back) const
    {
        unsigned first[BLOCKS], last[BLOCKS];
        wait(&full[at.stage], at.parity);
        multiply(acc, first, at.stage, 0, group, false);
        multiply(acc, last, at.stage, 1, group, true);
        wgmma_wait<1>();
        int before = at.stage;
        at.next();
#pragma unroll 1
        for (int step = 1; step < steps; ++step) {
            wait(&full[at.stage], at.parity);
            multiply(acc, first, at.stage, 0, group, true);
            wgmma_wait<1>();
            hand_back(before);
            multiply(acc, last, at.stage, 1, group, true);
            wgmma_wait<1>();
            before = at.stage;
            at.next();
        }
        wgmma_wait<0>();
        settle(acc);
        hand_back(before);
    }
    __device__ __forceinline__ void consume(Accumulators& acc, Place<STAGES>& at, int steps,
                                            int group, Barrier* full, Barrier* empty) const
    {
        consume(acc, at, steps, group, full, [=](int stage) { hand_back_warp(&empty[stage]); });
    }
};
