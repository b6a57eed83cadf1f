// mma_sp.cu, global memory to shared memory: a block's BM x BN tile of C, and the stages through
// which BK columns of A and rows of B pass in each step.
//
//   a stage, in chunks of 16 bytes: eight values of A or elements of B, or 8 x 16 bits of metadata
//
//     A      BM rows of BK/16 chunks     ldmatrix reads eight rows at the same chunk. So that these
//     B      BK rows of BN/8 chunks      lie in eight different 16-byte columns of 128-byte lines,
//     meta   BK/64 times BM/2 rows       rows are permuted: chunk c of row r is at c ^ (r % 8); of
//            of one chunk                A with BK 64, where two rows make a line, it is at
//                                        c ^ (r / 2 % 4). Rows of metadata are neighbours already.
#pragma once

#include "cp_async.cuh"
#include "ldmatrix.cuh"

using u16 = unsigned short;

enum MetadataBy {
    EVEN_THREADS,
    ALL_THREADS,
    FIRST_WARPS
};  // who copies metadata: half of them 16 bytes each, all 8

// Sizes are those of mma_sp.cu.
template <int BM_, int BN_, int BK_, int WM_, int WN_>
struct MmaTile {
    static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_;
    static_assert(BK % 64 == 0,
                  "a word of metadata serves 64 columns of A: choose BK as a multiple of 64");
    static_assert(BM % WM == 0 && BN % WN == 0,
                  "warps share a tile evenly: choose WM and WN as divisors of BM and BN");
    static_assert((WM == 32 || WM == 64) && (WN == 32 || WN == 64),
                  "a warp's tile is 32 or 64 by 32 or 64");
    static constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
    static constexpr int A_CHUNKS = BK / 16, B_CHUNKS = BN / 8;  // of a row
    // In bytes: where A, B and metadata begin in a stage; a stage; the metadata of 64 columns.
    static constexpr int A = 0, B = BM * BK, META = B + 2 * BK * BN, STAGE = META + BM * BK / 8,
                         PLANE = 8 * BM;

    // The first row and column of the part of the tile that a thread's warp computes.
    static __device__ int warp_m(unsigned thread) { return thread / 32 / (BN / WN) * WM; }
    static __device__ int warp_n(unsigned thread) { return thread / 32 % (BN / WN) * WN; }
};

// threadIdx.x and blockIdx.x, read when asked for: what is computed from them then need not wait in
// a register, of which a thread has none to spare while it multiplies.
__device__ __forceinline__ unsigned thread_now()
{
    unsigned x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}
__device__ __forceinline__ unsigned block_now()
{
    unsigned x;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
    return x;
}

// The first row (x) and column (y) of the block's tile of C. GROUP rows of tiles make a band, in
// which tiles are numbered down the columns.
template <class T, int GROUP>
__device__ __forceinline__ int2 tile_of_block(int m, int n)
{
    const int tiles_m = (m - 1) / T::BM + 1, tiles_n = (n - 1) / T::BN + 1, block = block_now();
    const int band = block / (GROUP * tiles_n), place = block % (GROUP * tiles_n);
    const int height = min(GROUP, tiles_m - band * GROUP);
    return make_int2((band * GROUP + place % height) * T::BM, place / height * T::BN);
}

// Byte offset of a 16-byte chunk in a tile of CHUNKS chunks a row.
template <int CHUNKS>
__device__ __forceinline__ int chunk_at(int row, int chunk)
{
    static_assert(
        CHUNKS == 4 || CHUNKS % 8 == 0, "a row is half of a 128-byte line or whole lines");
    return (row * CHUNKS + (chunk ^ (CHUNKS == 4 ? row / 2 % 4 : row % 8))) * 16;
}

// ROWS rows of UNITS units, dealt to THREADS threads in row-major order, one a turn: a thread
// begins at row(thread), unit(thread); in turn i it is down(i) rows and right(i) units further. All
// counts are powers of two.
template <int ROWS, int UNITS, int THREADS>
struct Deal {
    static_assert(ROWS * UNITS % THREADS == 0 && (THREADS % UNITS == 0 || UNITS % THREADS == 0),
                  "all get as many");
    static constexpr int TURNS = ROWS * UNITS / THREADS;
    static constexpr int WIDE = UNITS > THREADS ? UNITS / THREADS : 1;  // turns that a row takes
    static __device__ int row(unsigned thread) { return thread / UNITS; }
    static __device__ int unit(unsigned thread) { return thread % UNITS; }
    static __device__ constexpr int down(int i)
    {
        return UNITS > THREADS ? i / WIDE : i * (THREADS / UNITS);
    }
    static __device__ constexpr int right(int i) { return i % WIDE * THREADS; }
};

// What the threads copy in each step. CACHE is for copies of 16 bytes. ALIGN: bytes that divide the
// addresses of all rows of B, and so the width of its copies; cp.async takes no 2 bytes, which pass
// through a register, synchronously.
template <class T, CachePolicy CACHE, MetadataBy BY, int ALIGN, bool MASK>
struct Copy {
    static_assert(ALIGN == 16 || (MASK && (ALIGN == 8 || ALIGN == 4 || ALIGN == 2)),
                  "16, or with MASK 8, 4 or 2");
    using DealA = Deal<T::BM, T::A_CHUNKS, T::THREADS>;
    using DealB = Deal<T::BK, 2 * T::BN / ALIGN, T::THREADS>;
    static_assert(DealA::down(1) % 8 == 0,
                  "from turn to turn, the permutation of a row of A is the same");
    static constexpr int WIDTH = ALIGN / 2;  // columns of B in a copy
    const u16 *val, *meta, *b;               // the tile's first rows and columns of the next step
    const unsigned val_pitch, meta_pitch, b_pitch;  // elements
    int rows;                                       // of B that are left from the next step on
    const int columns;                              // of B from the tile's first one on

    // val, meta: rows of a whole number of steps, padded beforehand. m0, n0: the tile's first row
    // and column.
    __device__ Copy(const u16* val, const u16* meta, const u16* B, int m0, int n0, int n, int k,
                    int steps)
        : val(val + (size_t)m0 * steps * (T::BK / 2)),
          meta(meta + (size_t)(m0 / 2) * steps * (T::BK / 8)),
          b(B + n0),
          val_pitch(steps * (T::BK / 2)),
          meta_pitch(steps * (T::BK / 8)),
          b_pitch(n),
          rows(k),
          columns(n - n0)
    {
    }

    // Copies the next step into a stage where there is one (`run`), and goes on. All of it is
    // predicated, so that the compiler can deal it out among the multiplications.
    __device__ __forceinline__ void next(unsigned stage, bool run)
    {
        const unsigned thread = thread_now();
        const unsigned val_from = DealA::row(thread) * val_pitch + DealA::unit(thread) * 8;
        const unsigned val_to =
            T::A + chunk_at<T::A_CHUNKS>(DealA::row(thread), DealA::unit(thread));
        const int row = DealB::row(thread),
                  column = DealB::unit(thread) * WIDTH;  // of B, in the first turn
        const unsigned b_from = row * b_pitch + column;
        const unsigned b_to = T::B + chunk_at<T::B_CHUNKS>(row, column / 8) + column % 8 * 2;
#pragma unroll(ALIGN == 16 ? DealB::TURNS : 4)
        for (int i = 0; i < DealB::TURNS; ++i) {
            constexpr int CHUNK =
                8 / WIDTH;  // copies in one; down and right set bits of row and chunk that were 0
            const int down = DealB::down(i), right = DealB::right(i);
            const unsigned to =
                stage + (b_to ^ (down % 8 ^ right / CHUNK) * 16) + down * T::B_CHUNKS * 16;
            const u16* from = b + (size_t)down * b_pitch + right * WIDTH + b_from;
            if constexpr (!MASK) {
                cp_async<16, CACHE>(to, from, run);
            } else {
                const bool inside = down < rows - row && column + right * WIDTH < columns;
                if constexpr (ALIGN == 2) {
                    if (run) store_shared(to, inside ? __ldg(from) : u16(0));
                } else {
                    cp_async_or_zeros<ALIGN, ALIGN == 16 ? CACHE : CA>(to, from, inside, run);
                }
            }
        }
#pragma unroll
        for (int plane = 0; plane < T::BK / 64; ++plane)
#pragma unroll
            for (int down = 0; down < T::BM / 2; down += T::THREADS / 2) {
                const int first = BY == FIRST_WARPS ? thread % (T::THREADS / 2)
                                                    : thread / 2;  // row, in the first turn
                const int half = BY == FIRST_WARPS ? thread / (T::THREADS / 2) : thread % 2;
                const unsigned place = first * meta_pitch + (BY == ALL_THREADS ? half * 4 : 0);
                const u16* from = meta + (size_t)down * meta_pitch + plane * 8 + place;
                const unsigned to = stage + T::META + plane * T::PLANE + (first + down) * 16;
                const bool mine = run && (T::BM >= T::THREADS || first < T::BM / 2);
                if constexpr (BY == ALL_THREADS) cp_async<8, CA>(to + half * 8, from, mine);
                else cp_async<16, CACHE>(to, from, mine && half == 0);
            }
#pragma unroll
        for (int i = 0; i < DealA::TURNS; ++i)
            cp_async<16, CACHE>(stage + val_to + DealA::down(i) * T::A_CHUNKS * 16,
                                val + (size_t)DealA::down(i) * val_pitch + val_from, run);
        val += T::BK / 2, meta += T::BK / 8, b += T::BK * b_pitch, rows -= T::BK;
        asm volatile(
            ""
            : "+l"(val), "+l"(b));  // or the compiler keeps an address for every copy, and spills
    }
};
