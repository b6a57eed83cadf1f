// mma_sp.cu, shared memory to registers and on to C: what a warp does for its WM x WN part of the
// block's tile.
#pragma once

#include "half.cuh"
#include "ldmatrix.cuh"
#include "mma_sp.cuh"
#include "mma_tile.cuh"

enum Epilogue { PLAIN = 0, ALPHA = 1, BETA = 2, BIAS = 4 };  // bits; the others come with ALPHA

// What a warp multiplies in one part of a step, 32 columns of A.
template <class T>
struct Fragments {
    unsigned a[T::WM / 16][4], b[T::WN / 8][4], e[T::WM / 16];
};

// A warp's way from shared memory to fragments, and on to its part of C.
//
// SELECTORS 2, LDMATRIX 4   one ldmatrix.x4 for the metadata of two parts: selector 0 is for the
//                           first, 1 the second
// SELECTORS 2, LDMATRIX 2   one ldmatrix.x2 for each part: selector 0 is for rows 0 to 15 of every
//                           32, 1 the others; the metadata is in the order of
//                           `mma_sp.swizzle_by_part`
// SELECTORS 1               a word for each 16 rows and part, read by lanes 0 and 1 of every four,
//                           repeated by 2 and 3
template <class T, int SELECTORS, int LDMATRIX>
struct Warp {
    static_assert(SELECTORS == 1 || SELECTORS == 2,
                  "one pair of lanes holds the metadata, or two take turns");
    static_assert(LDMATRIX == 4 || (LDMATRIX == 2 && SELECTORS == 2 && T::WM == 64),
                  "ldmatrix.x2 serves 64 rows");
    int a, b, e;  // byte offsets in a stage that this lane gives to ldmatrix in part 0

    __device__ Warp()
    {
        const int lane = threadIdx.x % 32, m = T::warp_m(threadIdx.x), n = T::warp_n(threadIdx.x);
        a = T::A + chunk_at<T::A_CHUNKS>(m + lane % 16, lane / 16);
        b = T::B + chunk_at<T::B_CHUNKS>(lane, n / 8);
        const int row = SELECTORS == 1 ? lane / 4 : LDMATRIX == 2 || T::WM == 32 ? lane % 16 : lane;
        e = T::META + (m / 2 + row) * 16 + (SELECTORS == 1 ? lane % 2 * 4 : 0);
    }

    // before: the fragments of the part before, whose metadata may serve this one too.
    __device__ __forceinline__ void load(Fragments<T>& f, const Fragments<T>& before,
                                         unsigned stage, int part) const
    {
        const unsigned plane = stage + e + part / 2 * T::PLANE;
        if constexpr (SELECTORS == 1) {
#pragma unroll
            for (int i = 0; i < T::WM / 16; ++i)
                f.e[i] = load_shared_word(plane + i * 128 + part % 2 * 8);
        } else if constexpr (LDMATRIX == 2) {
            ldmatrix_x2(reinterpret_cast<unsigned (&)[2]>(f.e), plane + part % 2 * 256);
        } else if (part % 2) {
#pragma unroll
            for (int i = 0; i < T::WM / 16; ++i) f.e[i] = before.e[i];
        } else if constexpr (T::WM == 64) {
            ldmatrix_x4(f.e, plane);
        } else {
            ldmatrix_x2(f.e, plane);
        }
#pragma unroll
        for (int i = 0; i < T::WM / 16;
             ++i)  // 32 columns are two chunks: bit 5 of the offset counts pairs of them
            ldmatrix_x4(f.a[i], ((stage + a) ^ part * 32) + i * 16 * T::A_CHUNKS * 16);
#pragma unroll
        for (int j = 0; j < T::WN / 8; ++j)
            ldmatrix_x4_trans(f.b[j], ((stage + b) ^ j * 16) + part * 32 * T::B_CHUNKS * 16);
    }

    template <Dtype DTYPE>
    __device__ __forceinline__ void
    multiply(float (&acc)[T::WM / 16][T::WN / 8][4], const Fragments<T>& f, int part) const
    {
#pragma unroll
        for (int i = 0; i < T::WM / 16; ++i)
#pragma unroll
            for (int j = 0; j < T::WN / 8; ++j) {
                const bool second = SELECTORS == 2 && (LDMATRIX == 2 ? i % 2 : part % 2);
                const unsigned word = f.e[LDMATRIX == 2 ? i / 2 : i];
                if (second) mma_sp_m16n8k32<DTYPE, 1>(acc[i][j], f.a[i], f.b[j], word);
                else mma_sp_m16n8k32<DTYPE, 0>(acc[i][j], f.a[i], f.b[j], word);
            }
    }
};

template <int BYTES>
struct Bytes;
template <>
struct Bytes<16> {
    using type = uint4;
};
template <>
struct Bytes<8> {
    using type = uint2;
};
template <>
struct Bytes<4> {
    using type = unsigned;
};
template <>
struct Bytes<2> {
    using type = u16;
};

// body(its place in `shared`, its element of C) for each word of ALIGN bytes of a warp's WM x WN
// that a lane stores.
template <class T, int ALIGN, bool MASK, class Body>
__device__ __forceinline__ void
for_each_word(int lane, char* shared, int n, int rows, int columns, Body body)
{
    using DealC = Deal<T::WM, 2 * T::WN / ALIGN, 32>;
#pragma unroll(ALIGN == 16 ? 8 : 4)  // words in flight, where they come from C_in
    for (int i = 0; i < DealC::TURNS; ++i) {
        const int row = DealC::row(lane) + DealC::down(i);
        const int column = (DealC::unit(lane) + DealC::right(i)) * (ALIGN / 2);
        char* here = shared + chunk_at<T::WN / 8>(row, column / 8) + column % 8 * 2;
        if (!MASK || (row < rows && column < columns))
            body(*reinterpret_cast<typename Bytes<ALIGN>::type*>(here), (size_t)row * n + column);
    }
}

// A warp's WM x WN of C, rounded once: through `shared`, WM x WN x 2 bytes of its own, so that
// whole lines are written. C, C_in, bias: where the warp's part begins; rows, columns: how many of
// it exist, looked at with MASK only.
template <class T, Dtype DTYPE, int ALIGN, bool MASK, int EPILOGUE>
__device__ __forceinline__ void
store_tile(const float (&acc)[T::WM / 16][T::WN / 8][4], int lane, char* shared, u16* C, int n,
           int rows, int columns, float alpha, float beta, const u16* C_in, const float* bias)
{
    using Word = typename Bytes<ALIGN>::type;
    constexpr int CHUNKS = T::WN / 8;
    const int g = lane / 4, t = lane % 4;
    if constexpr (EPILOGUE & BETA) {
        for_each_word<T, ALIGN, MASK>(lane, shared, n, rows, columns, [=](Word& x, size_t at) {
            x = *reinterpret_cast<const Word*>(C_in + at);
        });
        __syncwarp();
    }
#pragma unroll
    for (int i = 0; i < T::WM / 16; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = i * 16 + half * 8 + g;
            const float add = EPILOGUE & BIAS && (!MASK || row < rows) ? bias[row] : 0;
#pragma unroll
            for (int j = 0; j < CHUNKS; ++j) {
                unsigned& two =
                    *reinterpret_cast<unsigned*>(shared + chunk_at<CHUNKS>(row, j) + t * 4);
                float x = acc[i][j][2 * half], y = acc[i][j][2 * half + 1];
                if constexpr (EPILOGUE != PLAIN) x *= alpha, y *= alpha;
                if constexpr (EPILOGUE & BETA) {
                    const float2 c = unpack<DTYPE>(two);
                    x = fmaf(beta, c.x, x), y = fmaf(beta, c.y, y);
                }
                if constexpr (EPILOGUE & BIAS) x += add, y += add;
                two = pack<DTYPE>(x, y);
            }
        }
    __syncwarp();
    for_each_word<T, ALIGN, MASK>(lane, shared, n, rows, columns, [=](Word& x, size_t at) {
        *reinterpret_cast<Word*>(C + at) = x;
    });
}
